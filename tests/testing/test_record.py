from __future__ import annotations

import pytest

from joinproto.errors import DecodeError, Stage
from joinproto.keys import Salt
from joinproto.messages import Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.testing import Dialed, Ended, Entry, Received, Sent, Unreadable
from joinproto.testing.record import exits_in, messages_in, short

EXIT = RankExited(rank=1, code=-9)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (EXIT, "RankExited(rank=1, code=-9)"),
        (Hello(host="a", local_devices=(0, 1)), "Hello(host='a', local_devices=(0, 1))"),
        (Hello(host="", local_devices=(), gpus=()), "Hello(host='', local_devices=())"),
        (
            Hello(host="b", local_devices=(), run_id=""),
            "Hello(host='b', local_devices=(), run_id='')",
        ),
        (b"\x00\xff", "2 bytes 00ff"),
        (bytes(100), f"100 bytes {'00' * 64}…"),
        (7, "7"),
    ],
)
def test_a_value_for_people(value: object, text: str) -> None:
    assert short(value) == text


def test_what_is_long_is_cut() -> None:
    assert len(short(Reject(reason="x" * 10_000))) < 200
    assert len(short("x" * 10_000)) < 200


def test_no_secret_is_told() -> None:
    salt = Salt(bytes(range(16)))
    accept = Accept(ranks=(0,), salt_hex=salt.hex(), formation_wait_secs=1)
    formed = WorldFormed(envelope_hex=salt.hex())
    for message in (accept, formed):
        assert salt.hex() not in short(message)
        assert salt.hex() not in str(Sent(connection=1, what=message))


ENTRIES: list[tuple[Entry, str]] = [
    (Dialed(connection=1), "#1 connected"),
    (
        Received(connection=1, message=EXIT, wire=2),
        "#1 received RankExited(rank=1, code=-9) in wire 2",
    ),
    (
        Unreadable(connection=2, error=DecodeError(Stage.KIND, "kind 9")),
        "#2 received what cannot be read: kind: kind 9",
    ),
    (Sent(connection=3, what=b"ab"), "#3 sent 2 bytes 6162"),
    (Ended(connection=3, cause=""), "#3 received the end of the stream"),
    (Ended(connection=3, cause="reset"), "#3 received a broken connection (reset)"),
]


@pytest.mark.parametrize(("entry", "text"), ENTRIES)
def test_an_entry_for_people(entry: Entry, text: str) -> None:
    assert str(entry) == text


def test_what_a_record_holds() -> None:
    late = RankExited(rank=1, code=0)
    record = [entry for entry, _ in ENTRIES] + [Received(connection=1, message=late, wire=2)]
    assert messages_in(record) == [EXIT, late]
    # A second report of one rank changes nothing, as with a real controller.
    assert exits_in(record) == {1: -9}
