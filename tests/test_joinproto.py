"""The package itself: what it offers, and that offering it costs nothing."""

from __future__ import annotations

import ast
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import joinproto
from tests.support.python import run_python

SOURCE = Path(joinproto.__file__)


def for_type_checkers() -> dict[str, str]:
    """The names that type checkers see, and the modules that they see them in."""
    tree = ast.parse(SOURCE.read_text())
    (seen,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(seen.test) == "TYPE_CHECKING"
    return {
        alias.asname or alias.name: str(statement.module)
        for statement in seen.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


PUBLIC = for_type_checkers()


@pytest.mark.parametrize("name", joinproto.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(joinproto, name) is not None


@pytest.mark.parametrize(("name", "home"), PUBLIC.items())
def test_every_name_is_what_type_checkers_take_it_for(name: str, home: str) -> None:
    assert getattr(joinproto, name) is getattr(import_module(home), name)


def test_all_is_all() -> None:
    assert sorted(joinproto.__all__) == sorted([*PUBLIC, "__version__"])
    assert len(set(joinproto.__all__)) == len(joinproto.__all__)


def test_a_star_takes_them() -> None:
    taken: dict[str, object] = {}
    exec("from joinproto import *", taken)
    assert set(joinproto.__all__) <= taken.keys()


@pytest.mark.parametrize("name", ["nonsense", "Dialer", "hello", "_Hello", ""])
def test_what_is_not_there(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^module 'joinproto' has no attribute '{name}'$"):
        getattr(joinproto, name)


def test_what_is_not_there_cannot_be_imported() -> None:
    with pytest.raises(ImportError, match="cannot import name 'nonsense' from 'joinproto'"):
        from joinproto import nonsense  # noqa: F401


def test_it_loads_only_what_is_asked_for() -> None:
    code = """
import joinproto
def loaded():
    return sorted(name for name in sys.modules if name.startswith("joinproto."))
at_first = loaded()
joinproto.Salt
print(json.dumps([at_first, loaded()]))
"""
    at_first, then = run_python(code)
    assert at_first == []
    assert "joinproto.keys" in then
    assert "joinproto.codec" not in then


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert joinproto.__version__ == project["version"]
