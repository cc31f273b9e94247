"""Immutable values made of named fields: inputs, effects, what machines know, settings.

A dataclass says the same and costs ten times as much to define, since it writes and compiles its
methods anew for every class; there are eighty of these, and an agent's start is measured.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

R = TypeVar("R", bound="Record")


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record:
    """Subclass it and annotate the fields; a value behind a field is its default.

    A subclass may check its values in `__post_init__`.

    Raises:
        TypeError: an instance is made with a field missing, or with one that is not there.
        AttributeError: a field is set on an instance.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    hidden: ClassVar[frozenset[str]] = frozenset()
    """Fields that hold a secret, and so are in no repr."""
    _known: ClassVar[frozenset[str]] = frozenset()
    _needed: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        noted = cls.__annotations__.items()
        cls.fields = tuple(name for name, kind in noted if "ClassVar" not in str(kind))
        cls._known = frozenset(cls.fields)
        cls._needed = frozenset(name for name in cls.fields if not hasattr(cls, name))

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)
        given = values.keys()
        if given != self._known and not self._needed <= given <= self._known:
            self._complain(given)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the values; does nothing unless a subclass does."""

    def _complain(self, given: Any) -> NoReturn:
        name = type(self).__name__
        if strange := sorted(given - self._known):
            raise TypeError(f"{name} has no field {', '.join(strange)}")
        missing = [each for each in self.fields if each in self._needed - given]
        raise TypeError(f"{name} needs {', '.join(missing)}")

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, each) for each in self.fields)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        shown = (each for each in self.fields if each not in self.hidden)
        said = ", ".join(f"{each}={getattr(self, each)!r}" for each in shown)
        return f"{type(self).__name__}({said})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")


def replace(record: R, /, **changes: Any) -> R:
    """The same record with other values for these fields.

    Raises:
        TypeError: there is no such field.
    """
    return type(record)(**{**record.__dict__, **changes})
