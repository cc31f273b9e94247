"""What the suite says in a case: messages with what the case leaves out filled in, and frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from joinproto import codec
from joinproto.conformance.world import Keys
from joinproto.grammar import JOIN_KIND
from joinproto.keys import OPEN, Salt
from joinproto.limits import HEADER_BYTES, TAG_BYTES
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
from joinproto.runtime.artifacts import build_envelope, build_relay_spec

FORMATION_WAIT = 60
"""Seconds that an Accept announces where a case does not say."""

_BY_NAME: dict[str, type[Message]] = {each.__name__: each for each in MESSAGES}

_LENGTH = slice(HEADER_BYTES - 4, HEADER_BYTES)
_TAG = slice(8, 8 + TAG_BYTES)


@dataclass(kw_only=True)
class Member:
    """What a case knows of one host.

    Attributes:
        host: its name.
        devices: what it offered.
        ranks: what it was given.
    """

    host: str
    devices: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()


def message_of(
    name: str,
    given: Mapping[str, Any],
    member: Member,
    keys: Keys,
    address: tuple[str, int],
) -> Message:
    """The message of that name, with these values and, where they say nothing, the usual ones."""
    kind = _BY_NAME[name]
    values = _DEFAULTS[kind](member, keys, address) | dict(given)
    if values.get("relay_spec_hex") is True:
        values["relay_spec_hex"] = _relay_spec(member, keys, address)
    return kind(
        **{each.name: _typed(values[each.name]) for each in fields(kind) if each.name in values}
    )


def _typed(value: Any) -> Any:
    """A value of JSON as a message has it."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, Mapping):
        return bytes.fromhex(value["bytes"])
    return value


def _hello(member: Member, keys: Keys, address: tuple[str, int]) -> dict[str, Any]:
    return {"host": member.host, "local_devices": [0]}


def _accept(member: Member, keys: Keys, address: tuple[str, int]) -> dict[str, Any]:
    return {
        "ranks": list(range(len(member.devices))),
        "salt_hex": keys.session.hex() if keys.open else None,
        "formation_wait_secs": FORMATION_WAIT,
    }


def _world_size(member: Member) -> int:
    """The smallest world that has these ranks."""
    return max(member.ranks, default=-1) + 1


def _formed(member: Member, keys: Keys, address: tuple[str, int]) -> dict[str, Any]:
    host, port = address
    envelope = build_envelope(
        controller_host=host,
        controller_port=port,
        world_size=_world_size(member),
        num_workers=1,
        host=member.host,
        ranks=member.ranks,
        local_devices=member.devices,
        salt=keys.session,
    )
    return {"envelope_hex": envelope, "relay_spec_hex": None}


def _relay_spec(member: Member, keys: Keys, address: tuple[str, int]) -> str:
    return build_relay_spec(
        controller_host=address[0],
        controller_port=address[1],
        world_size=_world_size(member),
        host=member.host,
        ranks=member.ranks,
        salt=keys.session,
    )


_DEFAULTS: dict[type[Message], Callable[[Member, Keys, tuple[str, int]], dict[str, Any]]] = {
    Hello: _hello,
    Accept: _accept,
    Reject: lambda member, keys, address: {"reason": "turned away for the test"},
    WorldFormed: _formed,
    RankExited: lambda member, keys, address: {"rank": (*member.ranks, 0)[0], "code": 0},
    Abort: lambda member, keys, address: {"reason": "given up for the test"},
}


def payload_of(message: Message, wire: int) -> bytes:
    """The payload that carries as much of a message as the version can."""
    return codec.encode_payload(codec.fitted(message, wire=wire), wire=wire)


def frame_of(payload: bytes, key: Salt, wire: int, options: Mapping[str, Any]) -> bytes:
    """A frame, with what a case wants different about it.

    Args:
        payload: what it carries.
        key: what it is tagged with.
        wire: the version of the conversation.
        options: the keys of a step that `specs/conformance-cases.schema.json` has for frames.
    """
    payload += bytes.fromhex(options.get("behind", ""))
    frame = bytearray(
        codec.encode_frame(
            payload, key=key, wire=options.get("wire", wire), kind=options.get("kind", JOIN_KIND)
        )
    )
    if "magic" in options:
        frame[:4] = int(options["magic"]).to_bytes(4, "little")
    match options.get("tag"):
        case None:
            pass
        case "flipped":
            frame[_TAG.stop - 1] ^= 1
        case digits:
            frame[_TAG] = bytes.fromhex(digits)
    if "length" in options:
        frame[_LENGTH] = int(options["length"]).to_bytes(4, "little")
    return bytes(frame[: options.get("cut")])


def key_named(name: str, keys: Keys) -> Salt:
    """The key that a case names: join, session, zero or other."""
    return {"join": keys.join, "session": keys.session, "zero": OPEN, "other": keys.other}[name]


def bytes_of(given: Any) -> bytes:
    """Bytes of a case: hex, or `{"repeat": [hex, times]}`, or a list of both."""
    if isinstance(given, str):
        return bytes.fromhex(given)
    if isinstance(given, list):
        return b"".join(map(bytes_of, given))
    digits, times = given["repeat"]
    return bytes.fromhex(digits) * int(times)
