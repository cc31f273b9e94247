"""framing: frames out of a stream, whatever the stream, however it is split."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto import framing, grammar
from joinproto.codec import encode_frame
from joinproto.errors import DecodeError, Stage
from joinproto.framing import Frame, Framer
from joinproto.grammar import WIRES
from joinproto.keys import OPEN
from joinproto.testing import strategies
from tests.support.vectors import VECTORS, Vector

MIB = 1024 * 1024
HEADER_STAGES = (Stage.MAGIC, Stage.VERSION, Stage.KIND, Stage.LENGTH)


def header(
    *,
    magic: int = 0xF10D17C4,
    version: int = 2,
    tag: bytes = bytes(8),
    kind: int = 7,
    length: int = 0,
) -> bytes:
    words = (number.to_bytes(4, "little") for number in (magic, version, kind, length))
    first, second, *rest = words
    return b"".join((first, second, tag, *rest))


def cut(chunks: Iterable[bytes], framer: Framer | None = None) -> list[Frame | Stage | str]:
    """What a reader gets from a stream: frames, then how it ended (an error's stage, or "end")."""
    framer = framer or Framer()
    got: list[Frame | Stage | str] = []
    try:
        for chunk in chunks:
            framer.feed(chunk)
            while (frame := framer.next_frame()) is not None:
                got.append(frame)
        framer.end()
    except DecodeError as error:
        return [*got, error.stage]
    return [*got, "end"]


def one_by_one(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


# -- vectors ----------------------------------------------------------------------------------


def expected(vector: Vector) -> str | None:
    """How a stream that holds nothing but this vector ends; None: with a whole frame."""
    if vector.verdict == "end-of-stream":
        return "end"
    return vector.stage if vector.stage in (*HEADER_STAGES, Stage.TRUNCATED) else None


ENDS = [vector for vector in VECTORS if expected(vector)]
FRAMES = [vector for vector in VECTORS if not expected(vector)]
FEEDS = pytest.mark.parametrize("feed", [lambda data: [data], one_by_one], ids=["whole", "drip"])


@FEEDS
@pytest.mark.parametrize("vector", ENDS, ids=str)
def test_a_vector_without_a_frame(vector: Vector, feed: Callable[[bytes], list[bytes]]) -> None:
    # The program behind the vectors speaks this version alone.
    framer = Framer(wires=frozenset((vector.wire,)))
    assert cut(feed(vector.data), framer) == [expected(vector)]


@FEEDS
@pytest.mark.parametrize("behind", [b"", b"xyz"], ids=["alone", "with bytes behind it"])
@pytest.mark.parametrize("vector", FRAMES, ids=str)
def test_a_vector_with_a_frame(
    vector: Vector, feed: Callable[[bytes], list[bytes]], behind: bytes
) -> None:
    # The one frame whose length was changed ends earlier than its bytes.
    size = 24 + int.from_bytes(vector.data[20:24], "little")
    assert size == vector.size or "length shortened" in vector.name
    frame, end = cut(feed(vector.data[:size] + behind))
    assert isinstance(frame, Frame)
    assert end == "end"  # three bytes more are no header
    assert frame.size == size
    assert frame.wire == vector.wire
    assert frame.kind in (range(1, 7) if vector.verdict == "other-kind" else range(1, 8))
    head = header(version=frame.wire, tag=frame.tag, kind=frame.kind, length=size - 24)
    assert vector.data[:size] == head + frame.payload


# -- splits -----------------------------------------------------------------------------------


@given(st.lists(strategies.frames(), max_size=4), st.binary(max_size=30), st.data())
def test_any_split_of_a_stream_gives_the_same_frames(
    sent: list[strategies.KeyedFrame], behind: bytes, data: st.DataObject
) -> None:
    stream = b"".join(frame.data for frame in sent) + behind
    whole = cut([stream])
    assert [frame.payload for frame in whole if isinstance(frame, Frame)][: len(sent)] == [
        frame.data[24:] for frame in sent
    ]
    assert cut(data.draw(strategies.splits(stream))) == whole


@given(st.binary(max_size=200), st.data())
def test_any_bytes_give_frames_or_our_error(garbage: bytes, data: st.DataObject) -> None:
    # A good header in front leads further in than garbage alone would.
    stream = data.draw(st.sampled_from([b"", header(length=3), header(length=200)])) + garbage
    whole = cut([stream])
    assert isinstance(whole[-1], str)
    assert cut(data.draw(strategies.splits(stream))) == whole


# -- the order of the checks ------------------------------------------------------------------


SPOKEN = ", ".join(map(str, sorted(WIRES)))


@pytest.mark.parametrize(
    ("wrong", "stage", "detail"),
    [
        ({"magic": 0xF10D17C5}, Stage.MAGIC, "0xF10D17C5 is not a frame's magic"),
        ({"magic": 1, "version": 9, "kind": 0}, Stage.MAGIC, "0x00000001 is not a frame's magic"),
        (
            {"version": 3, "kind": 0},
            Stage.VERSION,
            f"wire version 3, spoken here: {', '.join(map(str, sorted(WIRES)))}",
        ),
        ({"kind": 0, "length": 2**32 - 1}, Stage.KIND, "kind 0 is not one of 1 to 7"),
        ({"kind": 8}, Stage.KIND, "kind 8 is not one of 1 to 7"),
        ({"length": 16 * MIB + 1}, Stage.LENGTH, "payload of 16777217 bytes, more than 16777216"),
        ({"length": 2**32 - 1}, Stage.LENGTH, "payload of 4294967295 bytes, more than 16777216"),
    ],
)
def test_a_header_is_refused_by_itself(wrong: Any, stage: Stage, detail: str) -> None:
    framer = Framer()
    framer.feed(header(**wrong)[:-1])
    assert framer.next_frame() is None
    framer.feed(header(**wrong)[-1:])
    for _ in range(2):  # and it stays refused
        with pytest.raises(DecodeError) as raised:
            framer.next_frame()
        assert (raised.value.stage, raised.value.detail) == (stage, detail)


def test_versions_can_be_narrowed_on_the_way() -> None:
    framer = Framer()
    framer.feed(header(version=4) + header(version=2))
    assert framer.next_frame() == Frame(wire=4, kind=7, tag=bytes(8), payload=b"")
    framer.wires = frozenset((4,))
    with pytest.raises(DecodeError, match="^version: wire version 2, spoken here: 4$"):
        framer.next_frame()


def test_all_versions_that_are_known_are_taken_unless_narrowed() -> None:
    assert Framer().wires == WIRES.keys()


# -- the end of a stream ----------------------------------------------------------------------


@pytest.mark.parametrize("there", range(24))
def test_an_end_inside_a_header_is_clean(there: int) -> None:
    assert cut([header(length=5)[:there]]) == ["end"]


@pytest.mark.parametrize("there", range(5))
def test_an_end_inside_a_payload_is_an_error(there: int) -> None:
    framer = Framer()
    framer.feed(header(length=5) + bytes(there))
    assert framer.next_frame() is None
    with pytest.raises(DecodeError) as raised:
        framer.end()
    assert raised.value.stage is Stage.TRUNCATED
    assert raised.value.detail == f"the stream ended after {there} of 5 payload bytes"


def test_an_end_behind_a_whole_frame_is_clean() -> None:
    frame = Frame(wire=2, kind=7, tag=bytes(8), payload=bytes(5))
    assert cut([header(length=5) + bytes(5)]) == [frame, "end"]


# -- sizes ------------------------------------------------------------------------------------


def test_the_largest_payload_is_legal() -> None:
    framer = Framer()
    data = encode_frame(bytes(16 * MIB), key=OPEN, wire=2)
    framer.feed(data[:-1])
    assert framer.next_frame() is None
    assert framer.held == len(data) - 1
    framer.feed(data[-1:])
    frame = framer.next_frame()
    assert frame is not None
    assert frame.size == len(data)
    assert framer.held == 0


@pytest.mark.parametrize("length", [16 * MIB, 16 * MIB + 1, 2**32 - 1])
def test_nothing_is_allocated_for_bytes_that_are_only_announced(length: int) -> None:
    framer = Framer()
    tracemalloc.start()
    try:
        cut([header(length=length)], framer)
        assert tracemalloc.get_traced_memory()[1] < MIB // 4
    finally:
        tracemalloc.stop()


def test_a_stream_of_frames_costs_no_more_memory_than_the_largest_of_them() -> None:
    framer = Framer()
    chunk = header(length=1000) + bytes(1000)
    tracemalloc.start()
    try:
        for _ in range(2000):
            framer.feed(chunk)
            assert framer.next_frame() is not None
        assert tracemalloc.get_traced_memory()[1] < MIB // 4
    finally:
        tracemalloc.stop()


def test_a_header_is_looked_at_once_however_its_payload_drips(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed = []

    class Counted:
        @staticmethod
        def parse(data: bytes) -> Any:
            parsed.append(bytes(data))
            return grammar.Header.parse(data)

    monkeypatch.setattr(framing, "Header", Counted)
    stream = (header(length=2000) + bytes(2000)) * 2
    assert len(cut(one_by_one(stream))) == 3
    assert parsed == [header(length=2000)] * 2


def test_a_payload_is_not_shown() -> None:
    frame = Frame(wire=2, kind=7, tag=bytes(8), payload=b"5a17")
    assert "5a17" not in repr(frame)
    framer = Framer()
    framer.feed(b"5a17")
    assert "5a17" not in repr(framer)
