"""summary: what became of a child, in words."""

from __future__ import annotations

import pytest

from joinproto.runtime.summary import TAIL_BYTES, TAIL_LINES, Fate


def fate(code: int | None, *, ran: float | None = None, **facts: bool) -> Fate:
    made = Fate("rank 3 (device 1)")
    made.code = code
    if ran is not None:
        made.started, made.ended = 100.0, 100.0 + ran
    for name, value in facts.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (fate(0, ran=1.0), "exited with 0 after 1.0 s"),
        (fate(7, ran=0.04), "exited with 7 after 0.0 s"),
        (fate(-11, ran=3661.25), "was killed by SIGSEGV after 3661.2 s"),
        (fate(-15, ran=2.0, by_agent=True), "was killed by SIGTERM after 2.0 s (stopped by the ag"),
        (fate(1, ran=2.0, by_agent=True), "exited with 1 after 2.0 s (stopped by the agent)"),
        (fate(-9, ran=2.0, with_helper=True), "was killed by SIGKILL after 2.0 s (with the helper"),
        (
            fate(-9, ran=2.0, with_helper=True, by_agent=True),
            "was killed by SIGKILL after 2.0 s (stop",
        ),
        (fate(-9, ran=2.0, out_of_memory=True), "was killed by SIGKILL after 2.0 s (out of memory"),
        (fate(137, ran=2.0, out_of_memory=True), "exited with 137 after 2.0 s (out of memory)"),
        (fate(-35), "was killed by signal 35"),
        (fate(-34), "was killed by SIGRTMIN"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_an_end_in_words(made: Fate, told: str) -> None:
    assert made.told().startswith(f"rank 3 (device 1) {told}")
    assert list(made.lines()) == [made.told()]


def test_an_end_that_was_not_seen() -> None:
    made = fate(None)
    made.started = 1.0
    assert made.seconds is None
    assert made.told() == "rank 3 (device 1): how it ended is not known"


def tail(*blocks: bytes) -> list[str]:
    made = fate(1)
    for block in blocks:
        made.add_error(block)
    first, *rest = made.lines()
    assert first == "rank 3 (device 1) exited with 1"
    return rest


@pytest.mark.parametrize(
    ("blocks", "lines"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"ne\n", b"two"], ["one", "two"]),
        ([b"\n\none\n\n"], ["", "", "one"]),
        ([b"\n\n"], []),
        ([b"one\r\ntwo\r\n"], ["one", "two"]),
        ([b" 1%\r 50%\r 99%"], [" 99%"]),
        ([b" 1%\r 50%\r"], [" 50%"]),
        (["a\x0bb\x0cc\u2028d\n".encode()], ["a\x0bb\x0cc\u2028d"]),
        ([b"\xff\xfeok\n"], ["\ufffd\ufffdok"]),
    ],
)
def test_its_last_words(blocks: list[bytes], lines: list[str]) -> None:
    assert tail(*blocks) == [f"  | {line}" for line in lines]


def test_few_of_its_words_are_kept() -> None:
    many = b"".join(b"line %d\n" % number for number in range(1000))
    assert tail(many) == [f"  | line {number}" for number in range(1000 - TAIL_LINES, 1000)]
    (long,) = tail(b"x" * 5000, b"y" * 3)
    assert long == "  | " + "x" * (TAIL_BYTES - 3) + "yyy"
    made = fate(1)
    for _ in range(100):
        made.add_error(bytes(1000))
    assert len(made.tail) == TAIL_BYTES
