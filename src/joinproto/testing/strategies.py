"""Hypothesis strategies: messages, the frames that carry them, and ways to cut bytes up.

What they give is legal on the wire and otherwise anything, with the values at which an encoding
changes (250 and 251, 65,535 and 65,536, …) more often than chance would bring them.  Nothing is
longer than can be shown when an example fails.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from joinproto import codec
from joinproto.grammar import WIRES
from joinproto.keys import OPEN, Salt
from joinproto.limits import SALT_BYTES, SIGNATURE_BYTES
from joinproto.messages import (
    U8_END,
    U32_END,
    U64_END,
    Abort,
    Accept,
    Hello,
    Message,
    RankExited,
    Reject,
    WorldFormed,
)

EDGES = (0, 250, 251, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**64 - 1)
"""Where an unsigned varint grows, and the last values of the widths it may have."""

LONG = 251
"""The shortest length that takes more than one byte to say."""

DRIP = 4096
"""The most bytes that `splits` hands over one at a time."""


class KeyedFrame(NamedTuple):
    """A whole frame with a valid tag, and what is needed to read it.

    Attributes:
        data: its bytes, header and payload.
        message: what the payload says.
        key: what the tag was made with.
        wire: the version in its header.
    """

    data: bytes
    message: Message
    key: Salt
    wire: int

    def __repr__(self) -> str:
        return f"<frame of {len(self.data)} bytes, wire {self.wire}: {self.message}>"


# -- parts ------------------------------------------------------------------------------------


def wires() -> SearchStrategy[int]:
    """Any wire version that is spoken."""
    return st.sampled_from(sorted(WIRES))


def salts() -> SearchStrategy[Salt]:
    """Any key, that of open admission (16 zero bytes) included."""
    return st.just(OPEN) | st.binary(min_size=SALT_BYTES, max_size=SALT_BYTES).map(Salt)


def _unsigned(end: int) -> SearchStrategy[int]:
    edges = [edge for edge in EDGES if edge < end]
    return st.integers(0, end - 1) | st.sampled_from(edges)


def _exit_codes() -> SearchStrategy[int]:
    # On the wire a code is a zigzag: 2c for what a program returns, 2s - 1 for signal s.
    edges = [0, 1, -1, -9, -15, 125, 126, 127, 128, 255, 2**15, 2**31 - 1, -(2**31)]
    return st.integers(-(2**31), 2**31 - 1) | st.sampled_from(edges)


def _texts() -> SearchStrategy[str]:
    long = st.characters(codec="utf-8").map(lambda character: character * LONG)
    return st.text() | long


def _hex_texts() -> SearchStrategy[str]:
    return st.binary().map(bytes.hex) | _texts()


def _signatures() -> SearchStrategy[bytes]:
    any_bytes = st.binary(min_size=SIGNATURE_BYTES, max_size=SIGNATURE_BYTES)
    return st.just(bytes(SIGNATURE_BYTES)) | any_bytes


def _tuples(entry: SearchStrategy[Any]) -> SearchStrategy[tuple[Any, ...]]:
    long = entry.map(lambda value: (value,) * LONG)
    return st.lists(entry, max_size=8).map(tuple) | long


# -- messages ---------------------------------------------------------------------------------


def hellos(wire: int | None = None) -> SearchStrategy[Hello]:
    """Any Hello; with `wire`, one that says only what that version can."""
    number = _unsigned(U32_END)
    strategy = st.builds(
        Hello,
        host=_texts(),
        local_devices=_tuples(_unsigned(U8_END)),
        gpus=_tuples(st.text(max_size=40)),
        libtorch=_texts(),
        dataset_sig=_signatures(),
        run_id=st.none() | _texts(),
        nccl_version=st.none() | st.tuples(number, number, number),
        model_sig=st.none() | _signatures(),
    )
    return _sayable(strategy, wire)


def accepts(wire: int | None = None) -> SearchStrategy[Accept]:
    """Any Accept; with `wire`, one that says only what that version can."""
    strategy = st.builds(
        Accept,
        ranks=_tuples(_unsigned(U32_END)),
        salt_hex=st.none() | salts().map(Salt.hex) | _texts(),
        formation_wait_secs=_unsigned(U64_END),
    )
    return _sayable(strategy, wire)


def rejects(wire: int | None = None) -> SearchStrategy[Reject]:
    """Any Reject; with `wire`, one that says only what that version can."""
    return _sayable(st.builds(Reject, reason=_texts()), wire)


def worlds_formed(wire: int | None = None) -> SearchStrategy[WorldFormed]:
    """Any WorldFormed; with `wire`, one that says only what that version can."""
    strategy = st.builds(
        WorldFormed,
        envelope_hex=_hex_texts(),
        relay_spec_hex=st.none() | _hex_texts(),
    )
    return _sayable(strategy, wire)


def ranks_exited(wire: int | None = None) -> SearchStrategy[RankExited]:
    """Any RankExited; with `wire`, one that says only what that version can."""
    strategy = st.builds(RankExited, rank=_unsigned(U32_END), code=_exit_codes())
    return _sayable(strategy, wire)


def aborts(wire: int | None = None) -> SearchStrategy[Abort]:
    """Any Abort; with `wire`, one that says only what that version can."""
    return _sayable(st.builds(Abort, reason=_texts()), wire)


def messages(wire: int | None = None) -> SearchStrategy[Message]:
    """Any of the six messages; with `wire`, one that says only what that version can."""
    return st.one_of(
        hellos(wire),
        accepts(wire),
        rejects(wire),
        worlds_formed(wire),
        ranks_exited(wire),
        aborts(wire),
    )


def _sayable(strategy: SearchStrategy[Any], wire: int | None) -> SearchStrategy[Any]:
    if wire is None:
        return strategy
    return strategy.map(lambda message: codec.fitted(message, wire=wire))


# -- bytes ------------------------------------------------------------------------------------


@cache
def _once(make: Callable[[], SearchStrategy[Any]]) -> SearchStrategy[Any]:
    """A strategy made but once: making one costs more than drawing from it."""
    return make()


@st.composite
def frames(
    draw: st.DrawFn,
    *,
    message: SearchStrategy[Message] | None = None,
    key: SearchStrategy[Salt] | None = None,
    wire: int | None = None,
) -> KeyedFrame:
    """A valid frame.

    Args:
        message: what it may say; any message when None.  What the wire version cannot say of it is
            left out.
        key: what it may be tagged with; any key when None.
        wire: its version; any that is spoken when None.
    """
    version = draw(_once(wires)) if wire is None else wire
    said = codec.fitted(draw(_once(messages) if message is None else message), wire=version)
    salt = draw(_once(salts) if key is None else key)
    data = codec.encode(said, key=salt, wire=version)
    return KeyedFrame(data=data, message=said, key=salt, wire=version)


@st.composite
def splits(draw: st.DrawFn, data: bytes) -> tuple[bytes, ...]:
    """Any way in which a stream may hand `data` over: non-empty chunks that add up to it."""
    inner = range(1, len(data))
    if len(inner) <= DRIP and draw(st.booleans()):
        cuts = list(inner)
    else:
        cuts = sorted(draw(st.sets(st.sampled_from(inner), max_size=20))) if inner else []
    chunks = (data[start:end] for start, end in pairwise([0, *cuts, len(data)]))
    return tuple(chunk for chunk in chunks if chunk)
