"""Who may import whom: a module knows only modules on lower floors.

The imports are read from the source, those inside functions and behind TYPE_CHECKING included: what
a module names, it knows.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "joinproto"

FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "lazy", "limits", "record"),
    ("keys", "messages", "grammar"),
    ("framing", "codec"),
    ("inputs", "effects", "table"),
    ("machines.*", "session"),
    ("connection",),
    ("runtime.*",),
    ("agent", "controller"),
    ("testing.*",),
    ("conformance.*",),
    ("fuzzing.*",),
    ("",),  # joinproto itself, the door to the public API
    ("cli.*",),
    ("__main__",),
)
"""Modules below joinproto, lowest floor first; `x.*` is a package with all that is in it."""

CORE = 6
"""The floors below this one do no I/O and know no clock."""

CLOSE_KNIT = (
    *("runtime", "testing", "conformance", "fuzzing", "cli"),
    *("machines.agent", "machines.window"),
)
"""Packages whose modules may import each other.  The last two are one machine in several files."""

NO_IO = (
    *("asyncio", "fcntl", "multiprocessing", "os", "random", "secrets", "select", "selectors"),
    *("socket", "subprocess", "threading", "time"),
    # PyNaCl's sources of randomness; its comparison in constant time is welcome.
    *("nacl.utils", "nacl.public", "nacl.secret", "nacl.signing", "nacl.bindings.randombytes"),
)
"""Not to be imported by the core: the world comes in as arguments, and goes out as effects."""

ONLY_IN = {"construct": {"grammar", "codec"}, "transitions": {"table"}}
"""Libraries that are kept to the modules that tame them."""


# -- the checker ------------------------------------------------------------------------------


def floor_of(module: str) -> int:
    """The floor of a module, named from below joinproto; -1 where it has none."""
    package = module.partition(".")[0] + ".*"
    for floor, members in enumerate(FLOORS):
        if module in members or package in members:
            return floor
    return -1


def within(name: str, package: str) -> bool:
    """Whether a dotted name is `package` or lies in it."""
    return f"{name}.".startswith(f"{package}.")


def imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a module in `package` imports.

    `from a import b` gives `a.b`, whether b is a module or a name in one.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                for name in names:
                    yield node.lineno, name.name
            case ast.ImportFrom(module=module, names=names, level=level):
                parts = package.split(".")
                base = parts[: len(parts) - level + 1] if level else []
                for name in names:
                    yield node.lineno, ".".join([*base, *([module] if module else []), name.name])
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def violations(module: str, source: str, modules: set[str], *, is_package: bool) -> list[str]:
    """What is wrong with the imports of a module, named from below joinproto.

    `modules` are all modules of the project, named likewise.
    """
    if floor_of(module) < 0:
        return [f"{module}: stands on no floor; give it one in FLOORS"]
    whole = f"joinproto.{module}".rstrip(".")
    package = whole if is_package else whole.rpartition(".")[0]
    found: dict[str, None] = {}  # in order; `from a import b, c` may break one rule twice
    for line, target in imports(source, package):
        if target.partition(".")[0] == "joinproto":
            reason = _wrong_inside(module, _nearest(target, modules))
        else:
            reason = _wrong_outside(module, target)
        if reason:
            found[f"{module}, line {line}: {reason}"] = None
    return list(found)


def _nearest(target: str, modules: set[str]) -> str:
    """The module, from below joinproto, that importing `joinproto.x.y` reads."""
    name = target.removeprefix("joinproto").lstrip(".")
    while name not in modules and name:
        name = name.rpartition(".")[0]
    return name


def _wrong_inside(module: str, target: str) -> str:
    here, there = floor_of(module), floor_of(target)
    if there < 0:
        return f"{target} stands on no floor"
    if there > here:
        return f"imports {target or 'joinproto itself'}, which is above it"
    if there < here or target == module:
        return ""
    if any(within(module, package) and within(target, package) for package in CLOSE_KNIT):
        return ""
    return f"imports {target}, which is beside it"


def _wrong_outside(module: str, target: str) -> str:
    if floor_of(module) < CORE and any(within(target, name) for name in NO_IO):
        return f"imports {target}, which the core does without"
    for library, homes in ONLY_IN.items():
        if within(target, library) and module not in homes:
            return f"imports {target}, which only {' and '.join(sorted(homes))} may"
    return ""


# -- the project ------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts).removesuffix("__init__").rstrip(".")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


@pytest.mark.parametrize("module", MODULES, ids=lambda name: name or "joinproto")
def test_a_module_keeps_to_its_floor(module: str) -> None:
    path = MODULES[module]
    found = violations(
        module, path.read_text(), set(MODULES), is_package=path.name == "__init__.py"
    )
    assert not found, "\n".join(found)


def test_coverage_is_asked_of_the_whole_core_and_of_it_alone() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["report"]
    core = [member for floor in FLOORS[:CORE] for member in floor]
    assert config["fail_under"] == 100
    patterns = [member.replace(".*", "/**/*").replace(".", "/") for member in core]
    assert sorted(config["include"]) == sorted(f"*/joinproto/{name}.py" for name in patterns)


# -- the checker, checked ---------------------------------------------------------------------

KNOWN = {
    "", "errors", "limits", "messages", "grammar", "codec", "table", "machines", "machines.agent",
    "machines.agent.joining", "machines.child", "connection", "runtime", "runtime.clock",
    "runtime.loop", "agent", "controller", "testing", "testing.link", "conformance.run",
    "fuzzing.run", "cli", "cli.agent",
}  # fmt: skip


def check(module: str, source: str) -> list[str]:
    return violations(module, source, KNOWN, is_package=module in ("", "machines", "cli"))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("codec", "from joinproto.grammar import HEADER"),
        ("codec", "import joinproto.errors"),
        ("codec", "from joinproto import errors, messages"),
        ("machines.agent", "from joinproto.table import Rule"),
        ("machines.agent", "from joinproto.machines.agent.joining import dial"),
        ("runtime.loop", "from joinproto.runtime.clock import Clock\nimport socket, time"),
        ("runtime.loop", "from .clock import Clock"),
        ("testing.link", "from joinproto.controller import Controller"),
        ("fuzzing.run", "from joinproto.testing import link"),
        ("fuzzing.run", "import joinproto.conformance.run"),
        ("cli.agent", "from joinproto.conformance.run import main"),
        ("cli", "def main():\n    from joinproto.cli import agent"),
        ("", "from joinproto.agent import run_agent"),
        ("codec", "from construct import ConstructError"),
        ("table", "import transitions.core"),
        ("codec", "from nacl.bindings import sodium_memcmp"),
        ("codec", "import timeit, osmosis"),
        ("codec", "from __future__ import annotations"),
    ],
)
def test_an_import_that_is_allowed(module: str, source: str) -> None:
    assert check(module, source) == []


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("errors", "from joinproto.codec import decode", "imports codec, which is above it"),
        ("errors", "import joinproto.codec", "imports codec, which is above it"),
        ("errors", "from joinproto import codec", "imports codec, which is above it"),
        ("errors", "from . import codec", "imports codec, which is above it"),
        ("machines.agent", "from ..agent import run", "imports agent, which is above it"),
        ("machines", "from ..agent import run", "imports agent, which is above it"),
        ("connection", "from joinproto import runtime", "imports runtime, which is above it"),
        ("agent", "from joinproto.testing.link import L", "imports testing.link, which is above"),
        ("testing.link", "import joinproto.cli", "imports cli, which is above it"),
        ("codec", "from joinproto import decode", "imports joinproto itself, which is above it"),
        ("errors", "if TYPE_CHECKING:\n    import joinproto.table", "table, which is above it"),
        ("errors", "def f():\n    import joinproto.table", "table, which is above it"),
        ("errors", "importlib.import_module('joinproto.table')", "table, which is above it"),
        ("errors", "__import__('joinproto.table')", "table, which is above it"),
        ("errors", "from joinproto.limits import GRACE", "imports limits, which is beside it"),
        ("machines.agent", "from joinproto.machines import child", "machines.child, which is bes"),
        (
            "machines.child",
            "import joinproto.machines.agent.joining",
            "agent.joining, which is bes",
        ),
        ("codec", "from joinproto.cli import a, b", "imports cli, which is above it"),
        ("machines", "from .agent import TABLE", "imports machines.agent, which is beside it"),
        ("agent", "import joinproto.controller", "imports controller, which is beside it"),
        ("conformance.run", "import joinproto.fuzzing.run", "fuzzing.run, which is above it"),
        ("connection", "import time", "imports time, which the core does without"),
        ("connection", "import os.path", "imports os.path, which the core does without"),
        ("connection", "from time import monotonic", "time.monotonic, which the core does without"),
        ("codec", "from nacl.utils import random", "nacl.utils.random, which the core does"),
        ("codec", "from nacl.bindings import randombytes", "nacl.bindings.randombytes, which the"),
        ("messages", "import construct", "imports construct, which only codec and grammar may"),
        ("cli", "from construct import Struct", "construct.Struct, which only codec and grammar"),
        ("machines.agent", "import transitions", "imports transitions, which only table may"),
        ("runtime.loop", "from joinproto import runtime\nimport transitions", "line 2: imports tr"),
        ("attic", "", "stands on no floor; give it one in FLOORS"),
    ],
)
def test_an_import_that_is_refused(module: str, source: str, reason: str) -> None:
    found = check(module, source)
    assert len(found) == 1, found
    assert reason in found[0]


def test_every_forbidden_module_is_refused_below_the_runtime() -> None:
    for name in NO_IO:
        assert check("connection", f"import {name}"), name
        assert check("runtime.loop", f"import {name}") == [], name
