"""Changes to what a peer is sent, so that most of it still gets past the tag.

A `Mutator` works on three layers of a stream of frames: its bytes as they are; the fields of a
header, whose tag stays and is stale then; and the fields of a payload, cut by the grammar and put
together again behind a valid tag.  Above these it reorders, repeats and drops whole frames.  All
it does follows from the `Random` that it was given.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from joinproto.fuzzing.cutting import (
    HUGE,
    LONGEST,
    NUMBERS,
    SAMPLES,
    Leaf,
    Sort,
    dissect,
    joined,
    written,
)
from joinproto.fuzzing.pieces import (
    BYTES,
    FRAME,
    MAGIC,
    SESSION,
    Step,
    Unit,
    read_script,
    signed,
    stream_of,
    units,
    write_script,
)
from joinproto.grammar import CHANNEL_MAGICS, KINDS, WIRES
from joinproto.keys import OPEN
from joinproto.limits import MAX_PAYLOAD_BYTES, TAG_BYTES

Change = Callable[[bytes, int], bytes]
"""What makes another payload, of the same wire version, out of one."""

MAX_SIZE: Final = 4096
"""Bytes of a case, where nobody says otherwise."""

_KEYS: Final = (OPEN.raw, SESSION.raw)
_VERSIONS: Final = tuple(WIRES)
_U32S: Final = tuple(
    value.to_bytes(4, "little")
    for value in (
        *(0, 1, 2, 3, 4, 5, 6, 7, 8, 23, 24, 25, 255, 256, 2**16),
        *(MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES + 1, 2**31, 2**32 - 1),
    )
)
_OPTIONS: Final = (b"\x00", b"\x01", b"\x02", b"\xff")
_BYTES: Final = bytes((0, 1, 2, 7, 10, 13, 32, 127, 128, 250, 251, 252, 253, 254, 255))


# -- the mutator ------------------------------------------------------------------------------


class Mutator:
    """Changes cases at random.

    Args:
        random: where all its choices come from.
        tokens: words that are put in at random places.
        wires: the versions that new frames are of.
        plain: the data of scripts are texts, and no frames.
    """

    def __init__(
        self,
        random: Random,
        *,
        tokens: Sequence[bytes] = (),
        wires: Sequence[int] = _VERSIONS,
        plain: bool = False,
    ) -> None:
        self.random = random
        self._chance = random.random
        self._tokens = tuple(tokens) if plain else (*tokens, MAGIC, *CHANNEL_MAGICS)
        self._wires = tuple(wires)
        self._plain = plain
        self._byte_acts = (
            self._flip,
            self._set,
            self._insert,
            self._insert_token,
            self._overwrite,
            self._delete,
            self._double,
            self._cut_off,
        )

    def _below(self, end: int) -> int:
        # Three times as fast as randrange, and there are a dozen of these to every case.
        return int(self._chance() * end)

    # -- a case, changed once or a few times --------------------------------------------------

    def stream(self, data: bytes, max_size: int = MAX_SIZE) -> bytes:
        """A stream of frames, changed on one of the layers, seldom on several."""
        while True:
            choice = self._chance()
            if choice < 0.6:
                data = self.fields(data)
            elif choice < 0.72:
                data = self.frames(data)
            elif choice < 0.86:
                data = self.stale(data)
            else:
                data = self.raw(data)
            if self._chance() < 0.75:
                return data[:max_size]

    def script(self, data: bytes, max_size: int = MAX_SIZE) -> bytes:
        """A script, changed in a step's data or in its steps, seldom several times."""
        settings, steps = read_script(data)
        while True:
            settings = self._step(settings, steps)
            if self._chance() < 0.6:
                return write_script(settings, steps)[:max_size]

    def text(self, data: bytes, max_size: int = MAX_SIZE) -> bytes:
        """Bytes of which nothing is known, changed."""
        while True:
            data = self.raw(data)
            if self._chance() < 0.6:
                return data[:max_size]

    # -- the layers ---------------------------------------------------------------------------

    def raw(self, data: bytes) -> bytes:
        """Layer one: bytes as they are."""
        changed = bytearray(data)
        self._byte_acts[self._below(8) if changed else 2](changed)
        return bytes(changed)

    def stale(self, data: bytes) -> bytes:
        """Layer two: a field of a header, or a payload, under the tag that was there before."""
        parts = units(data)
        at = self._a_frame(parts)
        if at < 0:
            return self.raw(data)
        header, body = parts[at]
        field = self._below(6)
        if field == 5:
            body = self.raw(body)
        elif field == 2:
            header = header[:8] + self.raw(header[8:16])[:8].ljust(8, b"\0") + header[16:]
        else:
            start = (0, 4, 8, 16, 20)[field]
            header = header[:start] + self._u32(header[start : start + 4]) + header[start + 4 :]
        parts[at] = Unit(header, body)
        return stream_of(parts)

    def fields(self, data: bytes, change: Change | None = None) -> bytes:
        """Layer three: what a payload says, under a valid tag; `change` may say how it changes."""
        parts = units(data)
        at = self._a_frame(parts)
        if at < 0:
            return data + stream_of([self._new_frame()])
        header, body = parts[at]
        wire = header[4]
        kind = header[16] if self._chance() < 0.95 else 1 + self._below(max(KINDS) + 1)
        key = self._key_of(header, body)
        parts[at] = signed((change or self.payload)(body, wire), key, wire, kind)
        return stream_of(parts)

    def frames(self, data: bytes) -> bytes:
        """Whole frames, in another order, number or version, or of another key."""
        parts = units(data)
        at = self._below(len(parts)) if parts else 0
        match self._below(7) if parts else 6:
            case 0:
                del parts[at]
            case 1:
                parts.insert(self._below(len(parts) + 1), parts[at])
            case 2:
                parts.append(parts.pop(at))
            case 3:
                parts.insert(at, Unit(b"", list(CHANNEL_MAGICS)[self._below(4)]))
            case 4 if parts[at].header:
                parts[at] = signed(parts[at].body, self._key(), self._wire(), parts[at].header[16])
            case 5 if parts[at].header:
                body = parts[at].body
                parts[at] = parts[at]._replace(body=body[: self._below(len(body) + 1)])
            case _:
                parts.insert(at, self._new_frame())
        return stream_of(parts)

    def payload(self, payload: bytes, wire: int) -> bytes:
        """A payload with one of its fields changed, or another in its place."""
        choice = self._chance()
        if choice < 0.04 or not payload:
            return self._sample(wire)
        if choice < 0.10:
            return payload + self._some_bytes()
        if choice < 0.14:
            return payload[: self._below(len(payload))]
        if choice < 0.18:
            return self.raw(payload)
        cut = dissect(payload, wire)
        leaves = list(cut.leaves)
        if choice < 0.34 and cut.spans:
            self._move(leaves, cut.spans)
        else:
            at = self._below(len(leaves))
            leaves[at : at + 2] = self._changed(leaves[at], leaves[at + 1 : at + 2])
        return joined(leaves)

    # -- fields -------------------------------------------------------------------------------

    def _changed(self, leaf: Leaf, behind: list[Leaf]) -> list[Leaf]:
        """A leaf and the one behind it, the first of them changed."""
        sort, data, fill = leaf
        if sort is Sort.OPTION:
            return self._option(leaf, behind)
        if sort is Sort.VARIANT and self._chance() < 0.7:
            return [Leaf(sort, bytes((self._below(len(SAMPLES[_VERSIONS[0]]) + 1),))), *behind]
        if sort is Sort.COUNT and fill and self._chance() < 0.5:
            more = (1, 2, 250, 251)[self._below(4)]
            room = max(0, more * len(fill) <= LONGEST)
            return [Leaf(sort, written(leaf.value + more)), Leaf(Sort.REST, fill * more * room)] + (
                behind
            )
        if sort is Sort.LENGTH and behind and self._chance() < 0.6:
            text = self._text(behind[0].data)
            return [Leaf(sort, written(len(text))), Leaf(Sort.BYTES, text)]
        if sort in (Sort.BYTES, Sort.REST):
            return [Leaf(sort, self._text(data)), *behind]
        return [Leaf(sort, self._number(leaf)), *behind]

    def _option(self, leaf: Leaf, behind: list[Leaf]) -> list[Leaf]:
        if leaf.data == b"\x00" and self._chance() < 0.7:
            return [Leaf(leaf.sort, b"\x01"), Leaf(Sort.REST, leaf.fill), *behind]
        return [Leaf(leaf.sort, _OPTIONS[self._below(4)]), *behind]

    def _number(self, leaf: Leaf) -> bytes:
        choice = self._chance()
        if choice < 0.1:
            return HUGE[self._below(2)]
        if choice < 0.6:
            return NUMBERS[self._below(len(NUMBERS))]
        if choice < 0.8:
            return written(max(0, leaf.value + (1 if choice < 0.7 else -1)))
        width = (2, 4, 8)[self._below(3)]
        value = leaf.value & ((1 << 8 * width) - 1)
        return bytes((251 + (width > 2) + (width > 4),)) + value.to_bytes(width, "little")

    def _text(self, data: bytes) -> bytes:
        choice = self._chance()
        if choice < 0.1:
            return b""
        if choice < 0.2 and data:
            return (data * (1 + 251 // len(data)))[: 249 + self._below(4)]
        if choice < 0.3:
            at = self._below(len(data) + 1)
            return (
                data[:at] + (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0")[self._below(4)] + data[at:]
            )
        return self.raw(data)

    def _move(self, leaves: list[Leaf], spans: Sequence[tuple[int, int]]) -> None:
        start, end = spans[self._below(len(spans))]
        match self._below(3):
            case 0:
                del leaves[start:end]
            case 1:
                leaves[end:end] = leaves[start:end]
            case _:
                taken = leaves[start:end]
                del leaves[start:end]
                at = self._below(len(leaves) + 1)
                leaves[at:at] = taken

    # -- frames -------------------------------------------------------------------------------

    def _a_frame(self, parts: Sequence[Unit]) -> int:
        """One of the frames, by its place; -1: there is none."""
        if len(parts) == 1:
            return 0 if parts[0].header else -1
        places = [at for at, part in enumerate(parts) if part.header]
        return places[self._below(len(places))] if places else -1

    def _key_of(self, header: bytes, body: bytes) -> bytes:
        for key in _KEYS:
            covered = header[16:24] + body
            if hmac.digest(key, covered, "sha256")[:TAG_BYTES] == header[8:16]:
                return key
        return self._key()

    def _key(self) -> bytes:
        return _KEYS[self._below(2)]

    def _wire(self) -> int:
        return self._wires[self._below(len(self._wires))]

    def _new_frame(self) -> Unit:
        wire = self._wire()
        return signed(self._sample(wire), self._key(), wire)

    def _sample(self, wire: int) -> bytes:
        samples = SAMPLES.get(wire) or SAMPLES[_VERSIONS[0]]
        return samples[self._below(len(samples))]

    def _u32(self, old: bytes) -> bytes:
        if self._chance() < 0.6:
            return _U32S[self._below(len(_U32S))]
        value = int.from_bytes(old, "little") ^ (1 << self._below(32))
        return value.to_bytes(4, "little")

    # -- steps --------------------------------------------------------------------------------

    def _step(self, settings: int, steps: list[Step]) -> int:
        """Change one step; returns the settings, which are seldom changed."""
        at = self._below(len(steps)) if steps else 0
        choice = self._chance()
        if choice < 0.04:
            return self._below(256)
        if choice < 0.2 or not steps:
            steps.insert(self._below(len(steps) + 1), self._new_step())
        elif choice < 0.26:
            del steps[at]
        elif choice < 0.32:
            steps.insert(self._below(len(steps) + 1), steps[at])
        elif choice < 0.38:
            steps.append(steps.pop(at))
        elif choice < 0.46 and len(steps[at].data) > 1:
            op, _, data = steps[at]
            middle = 1 + self._below(len(data) - 1)
            steps[at : at + 1] = [Step(op, data=data[:middle]), Step(BYTES, data=data[middle:])]
        else:
            steps[at] = self._changed_step(steps[at])
        return settings

    def _changed_step(self, step: Step) -> Step:
        if self._plain and step.op in (BYTES, FRAME):
            return step._replace(data=self.text(step.data))
        if step.op == FRAME:
            return step._replace(data=self.payload(step.data, self._wire()))
        if step.op == BYTES:
            return step._replace(data=self.stream(step.data))
        return step._replace(argument=self._below(256))

    def _new_step(self) -> Step:
        choice = self._chance()
        if self._plain and choice < 0.45:
            return Step(BYTES, data=self._token())
        if choice < 0.35:
            return Step(FRAME, data=self._sample(self._wire()))
        if choice < 0.45:
            return Step(BYTES, data=stream_of([self._new_frame()]))
        return Step(2 + self._below(30), self._below(256))

    # -- bytes --------------------------------------------------------------------------------

    def _flip(self, data: bytearray) -> None:
        data[self._below(len(data))] ^= 1 << self._below(8)

    def _set(self, data: bytearray) -> None:
        data[self._below(len(data))] = _BYTES[self._below(len(_BYTES))]

    def _insert(self, data: bytearray) -> None:
        at = self._below(len(data) + 1)
        data[at:at] = self._some_bytes()

    def _insert_token(self, data: bytearray) -> None:
        at = self._below(len(data) + 1)
        data[at:at] = self._token()

    def _overwrite(self, data: bytearray) -> None:
        token = self._token()
        at = self._below(len(data))
        data[at : at + len(token)] = token

    def _delete(self, data: bytearray) -> None:
        at = self._below(len(data))
        del data[at : at + 1 + self._below(1 + self._below(16))]

    def _double(self, data: bytearray) -> None:
        at = self._below(len(data))
        data[at:at] = data[at : at + 1 + self._below(64)]

    def _cut_off(self, data: bytearray) -> None:
        del data[self._below(len(data)) :]

    def _token(self) -> bytes:
        return self._tokens[self._below(len(self._tokens))]

    def _some_bytes(self) -> bytes:
        return self.random.randbytes(1 + self._below(1 + self._below(16)))
