"""What happened in a case, in words."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from joinproto.conformance.conversation import Event, Garbled, Over, Raw, Said
from joinproto.conformance.http_reply import Reply
from joinproto.conformance.match import shown
from joinproto.conformance.world import Child, Exit, Line
from joinproto.testing.record import short

ENDINGS = {"fin": "the end of the stream (FIN)", "rst": "a reset (RST)"}


def event_text(event: Event | Reply | Exit | Child | Line | None) -> str:
    """Something that the target did."""
    match event:
        case Said():
            return f"{short(event.message)} in wire {event.wire}"
        case Garbled(error=error):
            return f"bytes that are no message ({error})"
        case Over(how=how):
            return ENDINGS[how]
        case Raw(data=data):
            return short(data)
        case Reply():
            return f"HTTP {event.status} with {len(event.body)} bytes"
        case Exit(code=code):
            return exit_text(code)
        case Child(name=name, down=down):
            return f"{child_text(name)} {'came up' if down is None else 'ended'}"
        case Line(stream=stream, text=text):
            return f"the line {text!r} on {stream}"
        case None:
            return "nothing"


def exit_text(code: int) -> str:
    """How the target ended."""
    if code < 0:
        return f"the target was ended by {signal.Signals(-code).name}"
    return f"the target ended with code {code}"


def child_text(name: str) -> str:
    """A process that the target started."""
    return f"the {name}" if name in ("relay", "bystander") else f"the rank at place {name}"


def pattern_text(pattern: Mapping[str, Any]) -> str:
    """Something that a case waits for."""
    where = f" on {pattern['on']}" if "on" in pattern else ""
    match pattern:
        case {"message": name}:
            fields = pattern.get("fields", {})
            values = ", ".join(f"{field}={shown(value)}" for field, value in fields.items())
            return f"{name}({values}){where}"
        case {"end": hows}:
            return " or ".join(ENDINGS[how] for how in hows) + where
        case {"http": wanted}:
            return f"an HTTP reply with {shown(wanted)}{where}"
        case {"exit": codes}:
            return f"the target to end with {shown(codes)}"
        case {"up": name}:
            facts = f" with {shown(pattern['facts'])}" if "facts" in pattern else ""
            return f"{child_text(str(name))} to come up{facts}"
        case {"down": name}:
            return f"{child_text(str(name))} to end"
        case {"line": text}:
            return f"a line like {text!r}"
        case {"dial": _}:
            return "the target to dial"
        case {"garbled": _}:
            return "bytes that are no message"
        case _:
            return f"nothing more{where}"
