"""One payload of a case, and three ways of making one."""

from __future__ import annotations

from typing import Any, NamedTuple

from making import messages as say


class Payload(NamedTuple):
    """One payload and what a reader of it is to say."""

    name: str
    comment: str
    data: bytes
    value: dict[str, Any] | None
    clause: str
    flags: tuple[str, ...] = ()
    result: str = "valid"


def taken(name: str, comment: str, said: say.Said, clause: str, *flags: str) -> Payload:
    """What encoders write."""
    return Payload(name, comment, *said, clause, flags)


def odd(name: str, comment: str, data: bytes, said: say.Said, clause: str, *flags: str) -> Payload:
    """What decoders take, though no encoder writes it."""
    return Payload(name, comment, data, said[1], clause, flags, "acceptable")


def bad(name: str, comment: str, data: bytes, clause: str, *flags: str) -> Payload:
    """What is refused."""
    return Payload(name, comment, data, None, clause, flags, "invalid")
