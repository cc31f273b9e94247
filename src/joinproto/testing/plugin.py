"""A pytest plugin: fixtures for testing agents and controllers.

It is loaded by its entry point wherever joinproto is installed, so it imports next to nothing: what
a fixture needs is imported when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pytest

if TYPE_CHECKING:
    from joinproto.connection import AgentConnection, ControllerConnection
    from joinproto.testing.clock import FakeClock
    from joinproto.testing.fakes import FakeAgent, FakeController
    from joinproto.testing.link import Link
    from joinproto.testing.processes import FakeProcesses

F = TypeVar("F", "FakeController", "FakeAgent")
_Make: TypeAlias = Callable[..., F]

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test has failed, so that no fixture waits for what cannot come any more."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture
def joinproto_clock() -> FakeClock:
    """A clock that stands still until it is told to go on."""
    from joinproto.testing.clock import FakeClock

    return FakeClock()


@pytest.fixture
def joinproto_link(
    joinproto_clock: FakeClock,
) -> Callable[[AgentConnection, ControllerConnection], Link]:
    """Makes an in-memory link on which an agent has just dialed a controller."""
    from joinproto.testing.link import Link

    def make(agent: AgentConnection, controller: ControllerConnection) -> Link:
        return Link.between(agent, controller, joinproto_clock)

    return make


@pytest.fixture
def joinproto_processes(joinproto_clock: FakeClock) -> Callable[..., FakeProcesses]:
    """Makes fake processes for an agent; takes what `FakeProcesses` takes, but for the clock."""
    from joinproto.testing.processes import FakeProcesses

    def make(agent: AgentConnection, *behaviours: Any, **others: Any) -> FakeProcesses:
        return FakeProcesses(agent, joinproto_clock, *behaviours, **others)

    return make


@pytest.fixture
def joinproto_fake_controller(request: pytest.FixtureRequest) -> Iterator[_Make[FakeController]]:
    """Makes fake controllers; takes what `FakeController` takes, or, without a script, what
    `FakeController.admitting` does.

    A test that passes waits for their scripts, unless it has asked after them or closed them; a
    script that is not through then fails it.
    """
    from joinproto.testing.fakes import FakeController

    yield from _fakes(request, FakeController, FakeController.admitting)


@pytest.fixture
def joinproto_fake_agent(request: pytest.FixtureRequest) -> Iterator[_Make[FakeAgent]]:
    """Makes fake agents; takes what `FakeAgent` takes, or, without a script, what
    `FakeAgent.joining` does.  Their scripts are waited for as those of fake controllers.
    """
    from joinproto.testing.fakes import FakeAgent

    yield from _fakes(request, FakeAgent, FakeAgent.joining)


def _fakes(
    request: pytest.FixtureRequest, scripted: _Make[F], usual: _Make[F]
) -> Iterator[_Make[F]]:
    made: list[F] = []

    def make(*script: Any, **options: Any) -> F:
        fake = scripted(*script, **options) if script or "script" in options else usual(**options)
        made.append(fake)
        return fake

    try:
        yield make
        for fake in made:
            if not fake.checked and not request.node.stash.get(_FAILED, False):
                fake.join()
    finally:
        for fake in made:
            fake.close()
