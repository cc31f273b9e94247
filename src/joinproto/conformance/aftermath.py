"""What is left of a target's processes, and all that they wrote."""

from __future__ import annotations

from itertools import takewhile

from joinproto.conformance.awaiting import PATIENCE, Deviation
from joinproto.conformance.case import Step
from joinproto.conformance.crew import BYSTANDER
from joinproto.conformance.telling import child_text
from joinproto.conformance.world import World


def gone(world: World, step: Step) -> None:
    """All processes that the target has started end, and none comes up any more.

    Args:
        world: where they run.
        step: `gone` is for how many seconds none may come up.

    Raises:
        Deviation: one still runs, or has come up late.
    """
    due = world.now() + step.get("within", PATIENCE)
    while (names := _running(world)) and world.now() < due:
        world.run(due)
    # One that was just started has yet to tell that it is there.
    until = world.now() + step["gone"]
    while not names and world.now() < until:
        world.run(until)
        names = _running(world)
    if names:
        got = f"{' and '.join(map(child_text, names))} running"
        raise Deviation("nothing left running", got, clause=step.get("clause", ""))


def _running(world: World) -> list[str]:
    return [
        name
        for name, group in world.children.items()
        if name != BYSTANDER and any(child.down is None for child in group)
    ]


def forwarded(world: World, step: Step, prefix: str, data: bytes) -> None:
    """Lines of the target behind a prefix hold some bytes, put together, and no others.

    Args:
        world: where they are.
        step: `stream` is where they are looked for.
        prefix: what stands in front of each line.
        data: ASCII.

    Raises:
        Deviation: they hold others, or not all of them came in time.
    """
    stream = step.get("stream", "stdout")
    due = world.now() + step.get("within", PATIENCE)
    wanted = data.decode("ascii")
    while True:
        lines = [line.text for line in world.lines if line.stream == stream]
        got = "".join(text[len(prefix) :] for text in lines if text.startswith(prefix))
        if got == wanted:
            return
        if world.now() >= due or not wanted.startswith(got):
            raise Deviation(
                f"{len(wanted)} bytes behind {prefix!r} on {stream}",
                f"{len(got)}, of which the first {_same(wanted, got)} are as they were written",
                clause=step.get("clause", ""),
            )
        world.run(due)


def _same(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
