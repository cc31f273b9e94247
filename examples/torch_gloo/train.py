"""Fit a line on every rank together, with torch.distributed alone: nothing here knows joinproto.

    joinproto controller --bind 127.0.0.1:7000 --min-ranks 3 --target-ranks 3
    joinproto agent --controller 127.0.0.1:7000 --host a --devices 0,1 --torch -- python3 train.py
    joinproto agent --controller 127.0.0.1:7000 --host b --devices 0 --torch -- python3 train.py

`--torch` gives each rank what `init_process_group` looks for: RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT.  Gloo computes on the CPU, so no GPU is needed; a port of the controller's
`--master-port` must be free on the host of rank 0.
"""

import os

import torch
import torch.distributed as dist

STEPS = 300
RATE = 0.5


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {size}, local rank {os.environ['LOCAL_RANK']}", flush=True)

    # Every rank has a part of the points on y = 3x + 1, and none has them all.
    x = torch.arange(rank, 60, size) / 60
    y = 3 * x + 1
    weights = torch.zeros(2, requires_grad=True)
    for _ in range(STEPS):
        loss = ((weights[0] * x + weights[1] - y) ** 2).mean()
        (gradient,) = torch.autograd.grad(loss, weights)
        dist.all_reduce(gradient)
        with torch.no_grad():
            weights -= RATE * gradient / size

    slope, offset = weights.tolist()
    print(f"rank {rank}: y = {slope:.2f}x + {offset:.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
