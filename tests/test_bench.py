"""bench: the load tool speaks the protocol, and a table says what it was given."""

from __future__ import annotations

import argparse
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice

import pytest

from bench import _load, fuzz
from bench._dialing import dialers, wrong_ranks
from bench._load import Plan
from bench._report import chosen, report
from bench._table import Goal, Row
from joinproto.codec import check_tag, decode_payload, encode, encode_payload
from joinproto.errors import DecodeError
from joinproto.framing import Framer
from joinproto.grammar import JOIN_MAGIC, WIRES
from joinproto.keys import OPEN
from joinproto.messages import Accept, Hello, Message, Reject, WorldFormed

# -- the load tool ----------------------------------------------------------------------------


def said(data: bytes) -> Message | None:
    """The message that a controller hears under open admission; None: it waits for more.

    Raises:
        DecodeError: it is none.
    """
    framer = Framer()
    framer.feed(data.removeprefix(JOIN_MAGIC))
    frame = framer.next_frame()
    if frame is None:
        return None
    check_tag(frame.kind, frame.payload, frame.tag, OPEN)
    return decode_payload(frame.payload, wire=frame.wire).message


@pytest.mark.parametrize("wire", WIRES)
def test_an_agent_says_what_the_codec_would(wire: int) -> None:
    hello = Hello(host="n7", local_devices=(0,))
    assert _load.dial("n7", wire=wire) == JOIN_MAGIC + encode(hello, key=OPEN, wire=wire)


@pytest.mark.parametrize("ranks", [(), (0, 250), (251, 65_535, 65_536, 2**32 - 1)])
def test_the_ranks_of_an_accept(ranks: tuple[int, ...]) -> None:
    accept = Accept(ranks=ranks, salt_hex="00" * 16, formation_wait_secs=300)
    assert _load.accepted_ranks(encode_payload(accept, wire=2)) == list(ranks)


@pytest.mark.parametrize("wire", WIRES)
def test_garbage_is_never_a_hello(wire: int) -> None:
    for word in islice(_load.garbage(wire), 400):
        if word.startswith(JOIN_MAGIC):
            try:
                assert said(word) is None
            except DecodeError:
                continue


@pytest.fixture
def port() -> Iterator[int]:
    """A controller of three connections: one is silent, one is admitted, one is refused."""
    answers: dict[str, list[Message]] = {
        "n0": [Accept(ranks=(0,), formation_wait_secs=1), WorldFormed(envelope_hex="00" * 9000)],
        "n1": [Reject(reason="full")],
    }

    def serve() -> None:
        with ExitStack() as stack:
            for _ in range(3):
                link, _ = listener.accept()
                stack.enter_context(link)
                link.settimeout(10)
                if isinstance(hello := said(link.recv(65536)), Hello):
                    for answer in answers[hello.host]:
                        link.sendall(encode(answer, key=OPEN, wire=2))
            # The last dialer goes when its plan is over.
            link.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_what_comes_of_a_plan(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as silent:
        silent.sendall(JOIN_MAGIC)
        with dialers(Plan(port=port, agents=2, at_a_time=1)) as running:
            result = running.result()
    assert len(result.accepts) == 1
    assert (result.ranks, result.turned_away, result.formed) == ([0], 1, None)
    assert 0 < result.accepts[0] <= (result.accepted or 0)


def test_a_load_tool_that_fails_is_told_of() -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody else can answer there.
        taken.bind(("127.0.0.1", 0))
        plan = Plan(port=taken.getsockname()[1], silent=1)
        with pytest.raises(RuntimeError, match="^the load tool failed$"), dialers(plan) as running:
            running.result()


@pytest.mark.parametrize(
    ("ranks", "wrong"), [([1, 0, 2], 0), ([0, 1], 1), ([0, 1, 1, 2], 1), ([0, 1, 3], 2)]
)
def test_ranks_that_are_wrong(ranks: list[int], wrong: int) -> None:
    assert wrong_ranks(ranks, 3) == wrong


# -- the table --------------------------------------------------------------------------------


def row(ours: list[float], theirs: list[float], goal: Goal | None, note: str = "") -> Row:
    return Row("a row", "figure", "them", goal, "ms", ours, theirs, note)


@pytest.mark.parametrize(
    ("ours", "theirs", "goal", "code"),
    [
        ([1, 2, 9], [10], Goal(0.2), 0),
        ([3], [10], Goal(0.2), 1),
        ([3], [], Goal(0.2), 0),
        ([3], [10], None, 0),
        ([9], [1], Goal(8, least=True), 0),
        ([51], [], Goal(50, relative=False), 1),
        ([], [], Goal(50, relative=False), 0),
    ],
)
def test_a_goal_that_is_not_reached_is_an_exit_code(
    ours: list[float],
    theirs: list[float],
    goal: Goal | None,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report("bench", [row(ours, theirs, goal)], {}, None) == code
    assert ("not reached: a row" in capsys.readouterr().err) == bool(code)


def test_a_row_that_was_not_measured_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    report("bench", [row([], [], None, note="not run: no room")], {}, None)
    assert capsys.readouterr().out.rstrip().endswith("not run: no room")


def test_rows_are_chosen_by_name() -> None:
    assert chosen("c,a", ["a", "b", "c"]) == ["a", "c"]
    with pytest.raises(argparse.ArgumentTypeError, match="^no 'd'; there are a, b, c$"):
        chosen("d", ["a", "b", "c"])


# -- fuzzing ----------------------------------------------------------------------------------


def test_cases_are_counted() -> None:
    row = fuzz.row_of("unguided", 0.1)
    assert row.our_median
    assert row.note == ""


def test_without_atheris_nothing_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "find_spec", lambda name: None)
    row = fuzz.row_of("guided", 1)
    assert (row.ours, row.reached) == ([], None)
    assert row.note == "not run: no atheris (requirements/fuzz.lock)"
