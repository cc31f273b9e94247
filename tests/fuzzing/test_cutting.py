"""cutting: payloads come apart into leaves and together again, whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from joinproto.codec import decode_payload, encode_payload
from joinproto.fuzzing.cutting import NUMBERS, SAMPLES, Sort, dissect, joined, written
from joinproto.grammar import WIRES
from joinproto.messages import MESSAGES, Hello, Message
from joinproto.testing import strategies


@given(st.binary(max_size=80), st.sampled_from([*WIRES, 3]))
@example(b"\xfd", 4)
@example(b"\x00\x05ab", 2)
def test_any_payload_is_put_together_again(payload: bytes, wire: int) -> None:
    cut = dissect(payload, wire)
    assert joined(cut.leaves) == payload
    assert bool(cut.leaves) == bool(payload)
    assert all(0 <= start <= end <= len(cut.leaves) for start, end in cut.spans)


@pytest.mark.parametrize("wire", WIRES)
@given(data=st.data())
def test_a_message_leaves_no_rest(wire: int, data: st.DataObject) -> None:
    message: Message = data.draw(strategies.messages(wire))
    cut = dissect(encode_payload(message, wire=wire), wire)
    assert joined(cut.leaves) == encode_payload(message, wire=wire)
    long = isinstance(message, Hello) and len(message.gpus) > 64
    assert long or len(getattr(message, "ranks", ())) > 64 or cut.leaves[-1].sort is not Sort.REST


@pytest.mark.parametrize("wire", WIRES)
def test_there_is_a_legal_sample_of_each_message(wire: int) -> None:
    decoded = [decode_payload(sample, wire=wire) for sample in SAMPLES[wire]]
    assert [type(each.message) for each in decoded] == list(MESSAGES)
    assert not any(each.notes for each in decoded)


def test_numbers_come_in_all_widths() -> None:
    assert {b"\x01", b"\xfb\x01\x00", b"\xfc\x01\x00\x00\x00"} < set(NUMBERS)
    assert written(2**40) in NUMBERS
    assert written(2**64 - 1) == b"\xfd" + b"\xff" * 8
    assert len(set(NUMBERS)) == len(NUMBERS)
