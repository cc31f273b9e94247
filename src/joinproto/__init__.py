"""The join protocol of multi-host GPU training: agent, controller, and the protocol between them.

What is named here is the public interface; everything is imported when it is first used.

* Bytes and messages: `encode`, `Framer`, `decode_payload`, the messages.
* Without I/O: `AgentConnection`, `ControllerConnection` and what they return (`effects`).
* Whole roles: `AgentSpec`, `run_agent`, `join_world`, `join_and_spawn_local`, `Controller`.
* For tests of other programs: `joinproto.testing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""What type checkers take for true; importing it from typing would cost more than this module."""

__version__ = "0.1.0"

if TYPE_CHECKING:
    from joinproto.agent import JoinedWorld, join_and_spawn_local, join_world, run_agent
    from joinproto.codec import Decoded, Note, check_tag, decode_payload, encode
    from joinproto.connection import AgentConnection, ControllerConnection
    from joinproto.controller import Controller, Report
    from joinproto.errors import DecodeError, JoinprotoError, LocalError, RemoteError, Stage
    from joinproto.framing import Frame, Framer
    from joinproto.keys import OPEN, Salt
    from joinproto.machines.agent import Plan
    from joinproto.machines.controller import Admission
    from joinproto.messages import (
        Abort,
        Accept,
        Hello,
        Message,
        RankExited,
        Reject,
        WorldFormed,
    )
    from joinproto.runtime.spec import AgentSpec

_HOMES = {
    "agent": ("JoinedWorld", "join_and_spawn_local", "join_world", "run_agent"),
    "codec": ("Decoded", "Note", "check_tag", "decode_payload", "encode"),
    "connection": ("AgentConnection", "ControllerConnection"),
    "controller": ("Controller", "Report"),
    "errors": ("DecodeError", "JoinprotoError", "LocalError", "RemoteError", "Stage"),
    "framing": ("Frame", "Framer"),
    "keys": ("OPEN", "Salt"),
    "machines.agent": ("Plan",),
    "machines.controller": ("Admission",),
    "messages": (
        "Abort",
        "Accept",
        "Hello",
        "Message",
        "RankExited",
        "Reject",
        "WorldFormed",
    ),
    "runtime.spec": ("AgentSpec",),
}
_WHERE = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "OPEN",
    "Abort",
    "Accept",
    "Admission",
    "AgentConnection",
    "AgentSpec",
    "Controller",
    "ControllerConnection",
    "DecodeError",
    "Decoded",
    "Frame",
    "Framer",
    "Hello",
    "JoinedWorld",
    "JoinprotoError",
    "LocalError",
    "Message",
    "Note",
    "Plan",
    "RankExited",
    "Reject",
    "RemoteError",
    "Report",
    "Salt",
    "Stage",
    "WorldFormed",
    "__version__",
    "check_tag",
    "decode_payload",
    "encode",
    "join_and_spawn_local",
    "join_world",
    "run_agent",
]


def __getattr__(name: str) -> object:
    # Late: an agent's start is measured, and it needs few of these.
    if name not in _WHERE:
        raise AttributeError(f"module 'joinproto' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"joinproto.{_WHERE[name]}"), name)
