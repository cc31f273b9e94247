from __future__ import annotations

import pytest

import joinproto.testing
from joinproto.testing.fakes import FakeController
from tests.support.python import run_python


def test_every_name_of_the_package_is_there() -> None:
    for name in joinproto.testing.__all__:
        assert getattr(joinproto.testing, name) is not None, name
    assert joinproto.testing.FakeController is FakeController


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'FakeRelay'"):
        joinproto.testing.__getattr__("FakeRelay")


def test_the_package_by_itself_imports_nothing() -> None:
    loaded = run_python(
        "import joinproto.testing\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('joinproto')]))"
    )
    assert loaded == ["joinproto", "joinproto.testing"]
