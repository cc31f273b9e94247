"""descriptors: the limit on open ones, lifted as far as it goes."""

from __future__ import annotations

import resource

import pytest

from joinproto.runtime.descriptors import lift_limit
from tests.support.python import run_python

LIFT = """
import resource
from joinproto.runtime.descriptors import lift_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))
were = lift_limit()
print(json.dumps([were == (32, hard), resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)]))
"""


def test_the_soft_limit_becomes_the_hard_one() -> None:
    assert run_python(LIFT) == [True, True]


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_limits_that_may_not_be_set(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    def refuse(which: int, limits: tuple[int, int]) -> None:
        raise kind

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert lift_limit() is None
