"""Worlds of conformance cases in memory; see `joinproto.conformance.memory`."""

from __future__ import annotations

from joinproto.conformance.memory import NotInMemory, play_in_memory

__all__ = ["NotInMemory", "play_in_memory"]
