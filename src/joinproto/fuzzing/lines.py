"""Which lines of joinproto's core run: the second guide to cases for our own programs.

The shadow of a case runs the very code that our own agent and controller run, so what is reached
there is reached in the target.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

CORE: Final = ("machines", "codec.py", "connection.py", "framing.py", "grammar.py", "messages.py")
"""Files and folders below the package whose lines count."""


class Lines:
    """Takes down lines while it is entered; not for use beside a debugger or a tracer."""

    def __init__(self) -> None:
        root = Path(__file__).parents[1]
        self._core = tuple(str(root / name) for name in CORE)
        self._before: Any = None
        self._known: set[tuple[str, int]] = set()
        self._reached: set[tuple[str, int]] = set()

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._called)

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)

    def new(self) -> bool:
        """Whether lines were reached, since the last time, that never were before."""
        found = not self._reached <= self._known
        self._known |= self._reached
        self._reached.clear()
        return found

    @property
    def count(self) -> int:
        """How many lines were reached so far."""
        return len(self._known | self._reached)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename.startswith(self._core):
            self._reached.add((frame.f_code.co_filename, frame.f_lineno))
            return self._ran
        return None

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._reached.add((frame.f_code.co_filename, frame.f_lineno))
        return self._ran
