"""With real processes: what stands many cases, and what has its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop.peers import OURS
from joinproto.conformance.session import CannotStart, Settings
from joinproto.fuzzing.execute import SPARE, Executor
from joinproto.fuzzing.hunt import keys_of
from joinproto.fuzzing.oracles import judge
from joinproto.fuzzing.sequence import ALONE, Sequence, Step
from joinproto.fuzzing.shadow import foresee

CONTROLLER = (
    *(*OURS, "controller", "--bind", "127.0.0.1:{port}", "--min-ranks", "{min_ranks}"),
    *("--target-ranks", "{target_ranks}", "[--salt-file", "{salt_file}]"),
)
AGENT = (*OURS, "agent", "--grace", "0.5", "--", "{helper}")
HELLO: tuple[Step, ...] = ({"dial": "c"}, {"say": "Hello"}, {"look": "c"})

FAULTY = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
kept = []
while True:
    sock, _ = listener.accept()
    data = part = sock.recv(1000)
    while part and len(data) < 5:
        part = sock.recv(1000)
        data += part
    if sys.argv[2] == "dies" and data:
        os.abort()
    if sys.argv[2] == "grows":
        kept.append(bytearray(80 << 20))
    if sys.argv[2] == "keeps":
        kept += [os.dup(sock.fileno()) for _ in range(40)]
    while sys.argv[2] == "floods" and data:
        sock.sendall(bytes(1 << 20))
    sock.shutdown(socket.SHUT_RDWR)
    sock.close()
"""


@contextmanager
def executor(
    *command: str, role: str = "controller", admission: str = "open"
) -> Iterator[Executor]:
    settings = Settings(role=role, command=command, scale=0.1, seed=1)
    made = Executor(settings, admission, keys_of(settings, admission))
    try:
        yield made
    finally:
        made.close()


def struck(made: Executor, sequence: Sequence) -> list[str]:
    keys = keys_of(made.settings, sequence.admission)
    foreseen = foresee(sequence, keys, 0.1)
    return [each.oracle for each in judge(sequence, foreseen, made.play(sequence, foreseen))]


def faulty(how: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", FAULTY, "{port}", how)


def case(*steps: Step, **values: object) -> Sequence:
    return Sequence(**{"role": "controller", "wire": 4, "steps": steps or HELLO, **values})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("admission", ["open", "pre-shared"])
def test_one_controller_stands_many_cases(admission: str) -> None:
    with executor(*CONTROLLER, admission=admission) as made:
        for wire in (4, 2, 4):
            assert struck(made, case(wire=wire, admission=admission)) == []
        assert made.honest(4) == ""
        assert made.leaked() == ""
        assert made.started == 1
        made.fresh()
        assert struck(made, case(admission=admission)) == []
        assert made.started == 2


@pytest.mark.slow
def test_a_world_has_a_controller_of_its_own() -> None:
    with executor(*CONTROLLER) as made:
        steps: tuple[Step, ...] = (*HELLO, {"look": "c"}, {"say": "RankExited"})
        assert struck(made, case(*steps, quorum=ALONE)) == []
        assert struck(made, case(*HELLO, {"signal": "TERM"}, {"look": "c"})) == []
        assert made.started == 2


@pytest.mark.slow
@pytest.mark.parametrize("wire", [2, 4])
def test_every_agent_is_a_new_one(wire: int) -> None:
    steps: tuple[Step, ...] = (
        {"accept": "c"},
        {"say": "Accept"},
        {"say": "WorldFormed"},
        {"rank": 0, "do": {"exit": 0}},
        {"look": "c", "within": 5.0},
    )
    with executor(*AGENT, role="agent") as made:
        sequence = Sequence(role="agent", wire=wire, steps=steps)
        foreseen = foresee(sequence, keys_of(made.settings, "open"), 0.1)
        seen = made.play(sequence, foreseen)
        assert judge(sequence, foreseen, seen) == []
        assert seen.heard["c"].events == ["Hello", "RankExited", "fin"]
        assert seen.started == {"0"}
        assert seen.left == ()
        assert seen.exit == 0


@pytest.mark.slow
def test_a_target_that_dies_is_followed_by_a_new_one() -> None:
    with executor(*faulty("dies")) as made:
        assert struck(made, case()) == ["died"]
        assert struck(made, case({"dial": "c", "channel": ""})) == []
        assert made.started == 2


@pytest.mark.slow
@pytest.mark.parametrize(("how", "oracle"), [("grows", "memory"), ("floods", "flooded")])
def test_what_a_target_takes_and_gives_without_measure(how: str, oracle: str) -> None:
    with executor(*faulty(how)) as made:
        struck(made, case({"dial": "c", "channel": ""}))
        assert oracle in struck(made, case())


@pytest.mark.slow
def test_descriptors_that_are_not_let_go_of() -> None:
    with executor(*faulty("keeps")) as made:
        made.play(case({"dial": "c", "channel": ""}))
        assert made.leaked() == ""
        made.play(case())
        assert "more open descriptors" in made.leaked()
        assert SPARE < 40


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with executor(str(tmp_path / "none"), "{port}") as made, pytest.raises(CannotStart):
        made.play(case())


@pytest.mark.slow
def test_an_honest_host_that_is_not_let_in() -> None:
    with executor(*faulty("closes")) as made:
        made.play(case({"dial": "c", "channel": ""}))
        assert made.honest(4) == "an honest host got fin"
