"""Tools for testing agents and controllers; `joinproto.testing.plugin` has them as fixtures.

What is named here is imported when it is first asked for, since pytest imports this package to get
at the plugin.  Hypothesis strategies are in `joinproto.testing.strategies`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joinproto.testing.clock import FakeClock
    from joinproto.testing.fakes import FakeAgent, FakeController
    from joinproto.testing.link import End, Link, ResetLink, SansIO
    from joinproto.testing.memory import DialFailed, MemoryHost
    from joinproto.testing.processes import Behaviour, FakeProcess, FakeProcesses
    from joinproto.testing.record import Dialed, Ended, Entry, Received, Sent, Unreadable
    from joinproto.testing.script import (
        AcceptAndClose,
        Admit,
        Call,
        Close,
        Drain,
        Drip,
        Expect,
        ExpectBytes,
        ExpectExits,
        HalfClose,
        Pause,
        ReportExits,
        Reset,
        Say,
        SendBytes,
        Until,
        UseKey,
        WaitEnd,
    )
    from joinproto.testing.stage import SESSION, Mismatch, ScriptFailed, Stage, Step, Waiting

_HOMES = ("clock", "fakes", "link", "memory", "processes", "record", "script", "stage")

__all__ = [
    "SESSION",
    "AcceptAndClose",
    "Admit",
    "Behaviour",
    "Call",
    "Close",
    "DialFailed",
    "Dialed",
    "Drain",
    "Drip",
    "End",
    "Ended",
    "Entry",
    "Expect",
    "ExpectBytes",
    "ExpectExits",
    "FakeAgent",
    "FakeClock",
    "FakeController",
    "FakeProcess",
    "FakeProcesses",
    "HalfClose",
    "Link",
    "MemoryHost",
    "Mismatch",
    "Pause",
    "Received",
    "ReportExits",
    "Reset",
    "ResetLink",
    "SansIO",
    "Say",
    "ScriptFailed",
    "SendBytes",
    "Sent",
    "Stage",
    "Step",
    "Unreadable",
    "Until",
    "UseKey",
    "WaitEnd",
    "Waiting",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
