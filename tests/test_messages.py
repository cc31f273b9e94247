"""messages: complete and right when made, or not made at all."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from joinproto.errors import InvalidMessage
from joinproto.messages import (
    MESSAGES,
    Abort,
    Accept,
    Hello,
    Message,
    RankExited,
    Reject,
    WorldFormed,
)

GOOD: dict[type[Message], dict[str, Any]] = {
    Hello: {"host": "a", "local_devices": (0,)},
    Accept: {"ranks": (0,), "formation_wait_secs": 0},
    Reject: {"reason": ""},
    WorldFormed: {"envelope_hex": ""},
    RankExited: {"rank": 0, "code": 0},
    Abort: {"reason": ""},
}
"""The least that each message has to say."""

SURROGATE = "\ud800"
TOO_MANY = 65_537


def test_the_numbers_on_the_wire() -> None:
    names = ["Hello", "Accept", "Reject", "WorldFormed", "RankExited", "Abort"]
    assert [cls.__name__ for cls in MESSAGES] == names
    assert [cls.number for cls in MESSAGES] == [0, 1, 2, 3, 4, 5]


def test_the_defaults_say_nothing() -> None:
    hello = Hello(host="a", local_devices=(0,))
    assert (hello.gpus, hello.libtorch, hello.dataset_sig) == ((), "", bytes(32))
    assert (hello.run_id, hello.nccl_version, hello.model_sig) == (None, None, None)
    assert Accept(ranks=(), formation_wait_secs=0).salt_hex is None
    assert WorldFormed(envelope_hex="").relay_spec_hex is None


@pytest.mark.parametrize("cls", MESSAGES)
def test_a_message_does_not_change(cls: type[Message]) -> None:
    message = cls(**GOOD[cls])
    for field in fields(message):
        with pytest.raises(FrozenInstanceError):
            setattr(message, field.name, None)


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        (Hello, "host", "ünï" * 1000),
        (Hello, "local_devices", (0, 255)),
        (Hello, "local_devices", ()),
        (Hello, "local_devices", (1, 1)),  # for a controller to refuse, not for the wire
        (Hello, "gpus", ("a\nb", "\0")),
        (Hello, "gpus", ("",) * 65_536),
        (Hello, "dataset_sig", bytes(range(32))),
        (Hello, "run_id", ""),
        (Hello, "nccl_version", (0, 2**32 - 1, 250)),
        (Hello, "model_sig", bytes(32)),
        (Accept, "ranks", (0, 2**32 - 1)),
        (Accept, "salt_hex", "zz"),
        (Accept, "formation_wait_secs", 2**64 - 1),
        (WorldFormed, "relay_spec_hex", ""),
        (RankExited, "rank", 2**32 - 1),
        (RankExited, "code", -(2**31)),
        (RankExited, "code", 2**31 - 1),
    ],
)
def test_what_the_wire_carries_is_taken(cls: type[Message], name: str, value: Any) -> None:
    assert getattr(cls(**{**GOOD[cls], name: value}), name) == value


@pytest.mark.parametrize(
    ("cls", "name", "value", "complaint"),
    [
        (Hello, "host", None, "host is a str, not NoneType"),
        (Hello, "host", b"a", "host is a str, not bytes"),
        (Hello, "host", SURROGATE, "host holds a lone surrogate, which UTF-8 cannot carry"),
        (Hello, "local_devices", [0], "local_devices is a tuple, not list"),
        (Hello, "local_devices", (256,), "local_devices is 256, outside 0 to 255"),
        (Hello, "local_devices", (-1,), "local_devices is -1, outside 0 to 255"),
        (Hello, "local_devices", (True,), "local_devices is an int, not bool"),
        (Hello, "local_devices", (1.0,), "local_devices is an int, not float"),
        (Hello, "local_devices", (0,) * TOO_MANY, "local_devices has 65537 entries, more than"),
        (Hello, "gpus", "abc", "gpus is a tuple, not str"),
        (Hello, "gpus", (1,), "gpus is a str, not int"),
        (Hello, "gpus", (SURROGATE,), "gpus holds a lone surrogate"),
        (Hello, "libtorch", None, "libtorch is a str, not NoneType"),
        (Hello, "dataset_sig", bytes(31), "dataset_sig is 32 bytes"),
        (Hello, "dataset_sig", "0" * 32, "dataset_sig is 32 bytes"),
        (Hello, "dataset_sig", None, "dataset_sig is 32 bytes"),
        (Hello, "run_id", 1, "run_id is a str, not int"),
        (Hello, "nccl_version", (1, 2), "nccl_version is three numbers"),
        (Hello, "nccl_version", [1, 2, 3], "nccl_version is a tuple, not list"),
        (Hello, "nccl_version", (1, 2, 2**32), "nccl_version is 4294967296, outside 0 to"),
        (Hello, "model_sig", bytes(33), "model_sig is 32 bytes"),
        (Accept, "ranks", (2**32,), "ranks is 4294967296, outside 0 to 4294967295"),
        (Accept, "ranks", (-1,), "ranks is -1, outside"),
        (Accept, "ranks", (0,) * TOO_MANY, "ranks has 65537 entries, more than 65536"),
        (Accept, "salt_hex", 7, "salt_hex is a str, not int"),
        (Accept, "formation_wait_secs", 2**64, "formation_wait_secs is 18446744073709551616, "),
        (Accept, "formation_wait_secs", -1, "formation_wait_secs is -1, outside"),
        (Accept, "formation_wait_secs", 1.5, "formation_wait_secs is an int, not float"),
        (Reject, "reason", None, "reason is a str, not NoneType"),
        (WorldFormed, "envelope_hex", None, "envelope_hex is a str, not NoneType"),
        (WorldFormed, "relay_spec_hex", b"", "relay_spec_hex is a str, not bytes"),
        (RankExited, "rank", 2**32, "rank is 4294967296, outside 0 to 4294967295"),
        (RankExited, "code", 2**31, "code is 2147483648, outside -2147483648 to 2147483647"),
        (RankExited, "code", -(2**31) - 1, "code is -2147483649, outside"),
        (RankExited, "code", None, "code is an int, not NoneType"),
        (Abort, "reason", SURROGATE, "reason holds a lone surrogate"),
    ],
)
def test_what_the_wire_cannot_carry_is_refused(
    cls: type[Message], name: str, value: Any, complaint: str
) -> None:
    with pytest.raises(InvalidMessage) as raised:
        cls(**{**GOOD[cls], name: value})
    assert str(raised.value).startswith(complaint)


def test_a_text_as_long_as_a_payload_may_be_is_the_longest() -> None:
    text = "é" * (8 * 1024 * 1024)
    assert Abort(reason=text).reason == text
    with pytest.raises(InvalidMessage, match=r"^reason is longer than a payload may be"):
        Abort(reason=text + "e")


def test_secrets_are_not_shown() -> None:
    accept = Accept(ranks=(3,), salt_hex="5a17", formation_wait_secs=60)
    assert repr(accept) == "Accept(ranks=(3,), formation_wait_secs=60)"
    assert repr(WorldFormed(envelope_hex="5a17", relay_spec_hex="5a17")) == "WorldFormed()"
