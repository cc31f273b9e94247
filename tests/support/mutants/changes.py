"""What a mutant is, and the tools to seed a fault for as long as a `with` block lasts.

The suite reads and writes with the same codec as the target.  So a fault of the codec is seeded
where the target alone meets it: in `joinproto.connection`, or while a call from there runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, TypeAlias
from unittest.mock import patch

from joinproto import codec, connection
from joinproto.conformance.verdicts import Verdict
from joinproto.framing import Framer
from joinproto.table import Rule, Table

Change: TypeAlias = Callable[[], AbstractContextManager[Any]]
"""Makes the block in which a fault is there."""

Act: TypeAlias = Callable[[Any, Any, float], tuple[Any, tuple[Any, ...]]]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """Our agent or controller with one fault.

    Attributes:
        name: what it is called.
        role: agent or controller.
        what: the fault, in one sentence.
        change: makes the block in which it is there.
        named: id of the case that must tell, without the role.
        related: globs of ids, without the role, of cases about the same fault: they may tell too.
        verdict: what the named case must come to.
        real: only a real program shows it.
    """

    name: str
    role: str
    what: str
    change: Change
    named: str
    related: tuple[str, ...] = ()
    verdict: Verdict = Verdict.FAIL
    real: bool = False

    def concerns(self, case_id: str) -> bool:
        """Whether this case is about the fault."""
        name = case_id.partition("/")[2]
        # Sanity is about everything: without it no other case means anything.
        if name.startswith("sanity/"):
            return True
        return name == self.named or any(fnmatchcase(name, glob) for glob in self.related)


def put(owner: Any, name: str, value: Any) -> Change:
    """Another value for an attribute."""
    return lambda: patch.object(owner, name, value)


def together(*changes: Change) -> Change:
    """Several changes that make one fault."""

    @contextmanager
    def block() -> Iterator[None]:
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(change())
            yield

    return block


def during(function: Callable[..., Any], *changes: Change) -> Callable[..., Any]:
    """`function` with changes that hold only while it runs."""
    block = together(*changes)

    def changed(*args: Any, **values: Any) -> Any:
        with block():
            return function(*args, **values)

    return changed


class _Codec:
    """The codec as the target alone sees it."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(codec, name)


def coding(**functions: Any) -> Change:
    """Other functions of the codec, for the target."""
    return put(connection, "codec", _Codec(functions))


def reading(*changes: Change) -> Change:
    """Changes that hold while the target reads a payload."""
    return coding(decode_payload=during(codec.decode_payload, *changes))


def writing(*changes: Change) -> Change:
    """Changes that hold while the target writes a frame."""
    return coding(encode=during(codec.encode, *changes))


def framed(framer: type[Framer]) -> Change:
    """Another framer, for the target."""
    return put(connection, "Framer", framer)


# -- tables -----------------------------------------------------------------------------------


def table(old: Table[Any], rules: Iterable[Rule[Any]], *ignored: tuple[Enum, type]) -> Change:
    """Another content for a table, in place: all that hold it see it."""
    taken = {(rule.source, rule.on) for rule in rules} | set(ignored)
    new: Table[Any] = Table(
        old.name,
        states=type(old.initial),
        initial=old.initial,
        final=old.final,
        inputs=old.inputs,
        rules=rules,
        ignored=_grouped((old.ignored - taken) | set(ignored)),
        illegal=_grouped(old.illegal - taken),
    )
    return lambda: patch.dict(vars(old), vars(new), clear=True)


def _grouped(cells: Iterable[tuple[Enum, type]]) -> dict[Enum, list[type]]:
    groups: dict[Enum, list[type]] = {}
    for state, on in cells:
        groups.setdefault(state, []).append(on)
    return groups


def acting(old: Table[Any], act: Act, new: Act) -> Change:
    """Wherever a table does `act`, it does something else."""
    assert any(rule.act is act for rule in old.rules), act
    return table(old, [_with(rule, act=new) if rule.act is act else rule for rule in old.rules])


def asking(old: Table[Any], when: Any, new: Callable[[Any, Any, float], bool]) -> Change:
    """Wherever a table asks `when`, it asks something else."""
    assert any(rule.when is when for rule in old.rules), when
    return table(old, [_with(rule, when=new) if rule.when is when else rule for rule in old.rules])


def cell(old: Table[Any], source: Enum, on: type, *rules: tuple[Enum, Act]) -> Change:
    """One cell of a table leads elsewhere; without rules its input is ignored there."""
    kept = [rule for rule in old.rules if (rule.source, rule.on) != (source, on)]
    new = [Rule(source=source, on=on, target=target, act=act) for target, act in rules]
    return table(old, [*kept, *new], *(() if rules else ((source, on),)))


def _with(rule: Rule[Any], **changes: Any) -> Rule[Any]:
    return Rule(**{**rule.__dict__, **changes})


def after(act: Act, edit: Callable[[Any, Any, float, tuple[Any, ...]], tuple[Any, ...]]) -> Act:
    """`act` with its effects edited: `edit` gets the new context, input, now and effects."""

    def edited(ctx: Any, given: Any, now: float) -> tuple[Any, tuple[Any, ...]]:
        ctx, effects = act(ctx, given, now)
        return ctx, edit(ctx, given, now, effects)

    return edited


def nothing(ctx: Any, given: Any, now: float) -> tuple[Any, tuple[Any, ...]]:
    """Does nothing."""
    return ctx, ()


def without(act: Act, *kinds: type) -> Act:
    """`act` without its effects of these kinds."""
    return after(
        act,
        lambda ctx, given, now, effects: tuple(
            each for each in effects if not isinstance(each, kinds)
        ),
    )
