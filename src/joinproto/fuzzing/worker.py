"""One worker of the harness, as a process of its own: `python -m joinproto.fuzzing.worker`.

It reads its plan as a line of JSON from standard input, and writes what it comes to as lines of
JSON to standard output.  What other workers have kept and seen comes in by standard input too; its
end says stop.  So a worker ends with the harness, whatever ends that, and no secret is in an argv.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any

from joinproto.conformance.session import CannotStart, Settings
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.hunt import Hunt, Plan, first_look
from joinproto.fuzzing.sequence import Sequence
from joinproto.fuzzing.shadow import Row
from joinproto.keys import Salt

CHUNK = 65_536


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """A plan as plain data, the salt included."""
    settings = plan.settings
    return {
        "role": settings.role,
        "command": list(settings.command),
        "address": None if settings.address is None else list(settings.address),
        "scale": settings.scale,
        "seed": settings.seed,
        "salt": None if settings.salt is None else settings.salt.hex(),
        "admission": plan.admission,
        "wires": list(plan.wires),
        "worker": plan.worker,
        "workers": plan.workers,
        "seconds": plan.seconds,
        "cases": plan.cases,
        "known": dict(plan.known),
        "ourselves": plan.ourselves,
        "corpus": [each.to_json() for each in plan.corpus],
    }


def plan_from_json(values: Mapping[str, Any]) -> Plan:
    """A plan out of plain data."""
    address = values["address"]
    return Plan(
        settings=Settings(
            role=values["role"],
            command=tuple(values["command"]),
            address=None if address is None else (address[0], address[1]),
            scale=values["scale"],
            seed=values["seed"],
            salt=None if values["salt"] is None else Salt.from_hex(values["salt"]),
        ),
        admission=values["admission"],
        wires=tuple(values["wires"]),
        worker=values["worker"],
        workers=values["workers"],
        seconds=values["seconds"],
        cases=values["cases"],
        known=values["known"],
        ourselves=values["ourselves"],
        corpus=tuple(map(Sequence.from_json, values["corpus"])),
    )


class Writer:
    """Tells the harness what a hunt comes to.

    Args:
        out: where the lines go.
    """

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def line(self, **values: Any) -> None:
        """Write one line."""
        self._out.write(json.dumps(values) + "\n")
        self._out.flush()

    def kept(self, sequence: Sequence) -> None:
        """See `joinproto.fuzzing.hunt.Listener`."""
        self.line(kept=sequence.to_json())

    def bucket(self, bucket: str) -> None:
        """See `joinproto.fuzzing.hunt.Listener`."""
        self.line(bucket=bucket)

    def doubt(self, bucket: str) -> None:
        """See `joinproto.fuzzing.hunt.Listener`."""
        self.line(doubt=bucket)

    def finding(self, finding: Finding) -> None:
        """See `joinproto.fuzzing.hunt.Listener`."""
        self.line(finding=finding.to_json())

    def known(self, bucket: str, reason: str) -> None:
        """See `joinproto.fuzzing.hunt.Listener`."""
        self.line(known=[bucket, reason])

    def counts(self, cases: int, sessions: int, targets: int, rows: Mapping[Row, int]) -> None:
        """See `joinproto.fuzzing.hunt.Listener`."""
        counted = [[*row, number] for row, number in rows.items()]
        self.line(cases=cases, sessions=sessions, targets=targets, rows=counted)


class Reader:
    """Hears what the harness says, without waiting for it.

    Args:
        descriptor: where its lines come from.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = b""

    def first(self) -> dict[str, Any]:
        """The first line, for which it waits.

        Raises:
            ValueError: there is none.
        """
        while b"\n" not in self._held:
            data = os.read(self._descriptor, CHUNK)
            if not data:
                raise ValueError("no plan came")
            self._held += data
        line, _, self._held = self._held.partition(b"\n")
        values: dict[str, Any] = json.loads(line)
        return values

    def notes(self) -> Iterator[Sequence | str | None]:
        """What has come: cases, buckets; None: stop."""
        over = False
        while not over and select.select([self._descriptor], [], [], 0)[0]:
            data = os.read(self._descriptor, CHUNK)
            self._held += data
            over = not data
        *lines, self._held = self._held.split(b"\n")
        for line in lines:
            values = json.loads(line)
            yield Sequence.from_json(values["kept"]) if "kept" in values else values["bucket"]
        if over:
            yield None


def main() -> int:
    """Do what the plan on standard input says.

    Returns:
        0; 1: the target cannot be started, of which a line on standard output tells.
    """
    # A terminal's Ctrl-C is for the harness, which then says stop.
    signal.signal(signal.SIGINT, lambda *_: None)
    # Asked to end at once, it ends its target too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    reader, writer = Reader(sys.stdin.fileno()), Writer(sys.stdout)
    try:
        values = reader.first()
        plan = plan_from_json(values["plan"])
        if values["look"]:
            writer.line(spoken=list(first_look(plan)))
        else:
            Hunt(plan, writer, reader.notes).run()
    except CannotStart as error:
        writer.line(cannot=str(error))
        return 1
    except BrokenPipeError:
        return 1  # the harness is gone
    return 0


if __name__ == "__main__":
    sys.exit(main())
