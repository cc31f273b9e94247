"""Modules that a library imports at once and hardly ever uses, loaded when it uses them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """Stands in for a module until something in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


@contextmanager
def postponed(name: str) -> Iterator[None]:
    """While this lasts, importing the module `name` gives one that loads it at its first use.

    Who imports it later gets the module itself; one that is loaded already is left alone.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = _Later(name)
    try:
        yield
    finally:
        del sys.modules[name]
