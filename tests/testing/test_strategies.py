from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from joinproto import codec
from joinproto.framing import Framer
from joinproto.grammar import WIRES
from joinproto.keys import OPEN, Salt
from joinproto.messages import Abort, Accept, Hello, Message, RankExited, Reject, WorldFormed
from joinproto.testing import strategies as js

KINDS: list[tuple[Callable[..., Any], type]] = [
    (js.hellos, Hello),
    (js.accepts, Accept),
    (js.rejects, Reject),
    (js.worlds_formed, WorldFormed),
    (js.ranks_exited, RankExited),
    (js.aborts, Abort),
]


def gives(strategy: SearchStrategy[Any], condition: Callable[[Any], bool]) -> bool:
    """Whether some example meets the condition, without looking for the smallest that does."""
    found = False

    @settings(max_examples=150, phases=[Phase.generate])
    @given(strategy)
    def look(example: Any) -> None:
        nonlocal found
        found = found or condition(example)

    look()
    return found


@pytest.mark.parametrize(("strategy", "kind"), KINDS)
@pytest.mark.parametrize("wire", [None, *WIRES])
@given(data=st.data())
def test_a_message_of_its_kind_that_its_wire_can_say(
    strategy: Callable[..., Any], kind: type, wire: int | None, data: st.DataObject
) -> None:
    message: Message = data.draw(strategy(wire))
    assert type(message) is kind
    # Without a wire, what the newest can say is what there is.
    codec.encode_payload(message, wire=max(WIRES) if wire is None else wire)


@pytest.mark.parametrize("kind", [kind for _, kind in KINDS])
def test_any_message_is_any_of_them(kind: type) -> None:
    assert gives(js.messages(), lambda message: type(message) is kind)


@pytest.mark.parametrize("wire", WIRES)
def test_a_wire_says_all_that_it_can_and_no_more(wire: int) -> None:
    seen: set[str] = set()

    def look(hello: Hello) -> bool:
        seen.update(name for name in newer if getattr(hello, name) is not None)
        return False

    newer = ("run_id", "nccl_version", "model_sig")
    gives(js.hellos(wire), look)
    sayable = {subcon.name for subcon in WIRES[wire].payloads[Hello.number].subcons}
    assert seen == sayable.intersection(newer)


@pytest.mark.parametrize("code", [-(2**31), -9, 126, 2**31 - 1])
def test_exit_codes_reach_their_edges(code: int) -> None:
    assert gives(js.ranks_exited(), lambda message: message.code == code)


@pytest.mark.parametrize("rank", [250, 251, 65_535, 65_536, 2**32 - 1])
def test_numbers_reach_their_edges(rank: int) -> None:
    assert gives(js.ranks_exited(), lambda message: message.rank == rank)


def test_texts_and_lists_reach_lengths_of_more_than_a_byte() -> None:
    assert gives(js.aborts(), lambda abort: len(abort.reason) > 250)
    assert gives(js.hellos(), lambda hello: len(hello.gpus) > 250)


@given(js.salts() | st.just(OPEN))
def test_salts_are_salts(salt: Salt) -> None:
    assert Salt.from_hex(salt.hex()) == salt


@given(js.frames())
def test_a_frame_reads_back(frame: js.KeyedFrame) -> None:
    framer = Framer()
    framer.feed(frame.data)
    cut = framer.next_frame()
    assert cut is not None
    assert (cut.size, cut.wire, framer.held) == (len(frame.data), frame.wire, 0)
    codec.check_tag(cut.kind, cut.payload, cut.tag, frame.key)
    assert codec.decode_payload(cut.payload, wire=cut.wire).message == frame.message


@given(js.frames(message=js.hellos(), key=st.just(OPEN), wire=2))
def test_a_frame_may_be_narrowed(frame: js.KeyedFrame) -> None:
    assert isinstance(frame.message, Hello)
    assert (frame.key, frame.wire, frame.message.run_id) == (OPEN, 2, None)


@given(data=st.data(), content=st.binary(max_size=6000))
def test_a_split_adds_up(data: st.DataObject, content: bytes) -> None:
    chunks = data.draw(js.splits(content))
    assert b"".join(chunks) == content
    assert all(chunks)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_split_may_be_none_and_may_be_byte_by_byte(count: int) -> None:
    assert gives(js.splits(b"abcdef"), lambda chunks: len(chunks) == count)


def test_a_frame_is_shown_without_its_key() -> None:
    salt = Salt(bytes(range(16)))
    frame = js.KeyedFrame(data=salt.raw, message=Abort(reason="x"), key=salt, wire=2)
    assert repr(frame) == "<frame of 16 bytes, wire 2: Abort(reason='x')>"


@given(js.frames())
def test_a_frame_is_short_enough_for_hypothesis_to_show(frame: js.KeyedFrame) -> None:
    assert len(repr(frame)) < 30_000
