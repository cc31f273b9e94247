"""`python -m tests.support.faults ROLE NAME -- ARGS…`: our program with one fault, to be found.

Some are mutants of the conformance suite; the others do what no case of the suite is about: they
crash, leak, hang, or take more than they should.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from joinproto import codec
from joinproto.cli import main
from joinproto.errors import DecodeError
from joinproto.framing import Framer
from joinproto.inputs import EndOfStream, LinkBroken
from joinproto.machines.controller import CONTROLLER
from joinproto.machines.controller import ControllerState as C
from joinproto.messages import Abort, Accept, Reject, WorldFormed
from tests.support.mutants import mutant
from tests.support.mutants.changes import Change, cell, coding, framed


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A program with a fault.

    Attributes:
        role: agent or controller.
        name: what it is called.
        oracles: one of these must strike.
        change: makes the block in which the fault is there.
    """

    role: str
    name: str
    oracles: tuple[str, ...]
    change: Change


# -- what goes wrong --------------------------------------------------------------------------

_KEPT: list[Any] = []


def _decoding(act: Callable[[bytes], None]) -> Change:
    """Something happens with every payload, before it is read."""

    def decode(payload: bytes, **values: Any) -> Any:
        act(payload)
        return codec.decode_payload(payload, **values)

    return coding(decode_payload=decode)


def _refusing(act: Callable[[bytes, DecodeError], None]) -> Change:
    """Something happens with every payload that cannot be read."""

    def decode(payload: bytes, **values: Any) -> Any:
        try:
            return codec.decode_payload(payload, **values)
        except DecodeError as error:
            act(payload, error)
            raise

    return coding(decode_payload=decode)


def _encoding(act: Callable[[Any, bytes], bytes]) -> Change:
    """What goes out is something else."""

    def encode(message: Any, **values: Any) -> bytes:
        return act(message, codec.encode(message, **values))

    return coding(encode=encode)


def _abort_on_long(payload: bytes, error: DecodeError) -> None:
    """An announced length is believed, and cannot be had."""
    if b"\xfd" in payload or b"\xfc" in payload:
        os.abort()


def _crash_on_empty(payload: bytes) -> None:
    payload[0]  # an IndexError where there is none


def _crash_on_text(payload: bytes, error: DecodeError) -> None:
    if "UTF-8" in str(error):
        raise UnicodeError("cannot read that")


def _leak(payload: bytes, error: DecodeError) -> None:
    _KEPT.append(os.dup(0))


def _leak_children(payload: bytes, error: DecodeError) -> None:
    _KEPT.append(subprocess.Popen(["sleep", "600"]))


def _quadratic(payload: bytes) -> None:
    if len(payload) > 250:
        time.sleep(len(payload) ** 2 / 20_000)


def _doubled(*kinds: type) -> Callable[[Any, bytes], bytes]:
    return lambda message, frame: frame * 2 if isinstance(message, kinds) else frame


def _garbled(message: Any, frame: bytes) -> bytes:
    return frame[:-1] if isinstance(message, Reject | Abort) else frame


def _exit_on_reject(message: Any, frame: bytes) -> bytes:
    if isinstance(message, Reject):
        os._exit(3)
    return frame


class _Greedy(Framer):
    """Makes room for a payload, and much of it, when its length comes."""

    def _checked(self, header: Any) -> Any:
        header = super()._checked(header)
        _KEPT.append(b"\1" * min(4096 * header.length, 256 << 20))
        return header


def _raising(ctx: Any, given: Any, now: float) -> Any:
    raise RuntimeError("what now?")


def _of_suite(role: str, name: str, *oracles: str) -> Fault:
    return Fault(role=role, name=name, oracles=oracles, change=mutant(role, name).change)


def _own(role: str, name: str, oracles: str | tuple[str, ...], change: Change) -> Fault:
    oracles = (oracles,) if isinstance(oracles, str) else oracles
    return Fault(role=role, name=name, oracles=oracles, change=change)


FAULTS = (
    _own("controller", "crash-on-length", "died", _refusing(_abort_on_long)),
    _own("controller", "crash-on-empty", "died", _decoding(_crash_on_empty)),
    _own("controller", "crash-on-text", "died", _refusing(_crash_on_text)),
    _own(
        "controller",
        "crash-on-reset",
        "died",
        cell(CONTROLLER, C.ADMITTED, LinkBroken, (C.CLOSED, _raising)),
    ),
    _own("controller", "exit-on-reject", "died", _encoding(_exit_on_reject)),
    _own("controller", "leaks-descriptors", "leaked", _refusing(_leak)),
    _own("controller", "leaks-children", "leaked", _refusing(_leak_children)),
    _own("controller", "hangs-on-half-close", "hung", cell(CONTROLLER, C.AWAIT_HELLO, EndOfStream)),
    _own("controller", "quadratic", "hung", _decoding(_quadratic)),
    _own("controller", "greedy", "memory", framed(_Greedy)),
    _own("controller", "formed-twice", "formed-twice", _encoding(_doubled(WorldFormed))),
    _own("controller", "accepts-twice", "obeyed", _encoding(_doubled(Accept))),
    _own("controller", "garbled-reject", "garbled", _encoding(_garbled)),
    _of_suite("controller", "untagged-hello", "answered"),
    _of_suite("controller", "bad-tag-answered", "answered"),
    _of_suite("controller", "cap-above", "hung"),
    _of_suite("controller", "ranks-given-twice", "rank-twice"),
    _of_suite("controller", "host-twice", "obeyed"),
    _of_suite("controller", "reject-open", "hung"),
    _own("agent", "crash-on-length", "died", _refusing(_abort_on_long)),
    _of_suite("agent", "spawns-early", "started", "hung"),
    _of_suite("agent", "reported-twice", "told-twice"),
    _of_suite("agent", "abort-ignored", "hung"),
    _of_suite("agent", "end-ignored", "hung"),
    _of_suite("agent", "never-closes", "hung"),
)


def fault(role: str, name: str) -> Fault:
    """The fault of that name."""
    return next(each for each in FAULTS if (each.role, each.name) == (role, name))


if __name__ == "__main__":
    role, name, _, *arguments = sys.argv[1:]
    with fault(role, name).change():
        code = main(arguments)
    sys.exit(code)
