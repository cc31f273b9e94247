"""Agents and controllers for tests to run: as processes, and a controller on a thread."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from jsonschema import Draft202012Validator

from interop.processes import Watched, clean_environment
from joinproto.controller import Controller, Report
from joinproto.effects import Severity
from joinproto.runtime.inventory import Inventory, State, no_answer
from tests.support.python import PATIENCE

OURS = (sys.executable, "-W", "error", "-m", "joinproto")
"""How a role is started.  A descriptor or process that it forgets shows on its stderr."""

SCHEMA = json.loads((Path(__file__).parents[2] / "specs" / "events.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)


def checked(event: Mapping[str, Any]) -> dict[str, Any]:
    """The event, once the schema takes it."""
    VALIDATOR.validate(event)
    return dict(event)


def matches(event: Mapping[str, Any], name: str, fields: Mapping[str, object]) -> bool:
    """Whether an event has this name and these fields."""
    return event["event"] == name and fields.items() <= event.items()


# -- processes --------------------------------------------------------------------------------


def shell(script: str) -> tuple[str, ...]:
    """The command line of a shell script."""
    return ("/bin/sh", "-c", script)


def agent(
    *options: str, command: tuple[str, ...] = shell(":"), environment: Mapping[str, str] = {}
) -> Watched:
    """An agent whose ranks run `command`; a context manager that ends it with all it started."""
    argv = (*OURS, "agent", *options, "--", *command)
    return Watched(argv, environment=clean_environment(**environment))


class ControllerProcess(Watched):
    """A controller whose events are read and held against their schema."""

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The events so far, in order; with `name`, those alone."""
        events = [checked(json.loads(line)) for line in self.lines("stdout")]
        return [event for event in events if name in (None, event["event"])]

    def wait_event(self, name: str, **fields: object) -> dict[str, Any]:
        """The first event of that name with those fields, past or to come."""

        def find() -> dict[str, Any] | None:
            return next((each for each in self.events() if matches(each, name, fields)), None)

        return self.wait_for(find, f"event {name} with {fields}")

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        listening = self.wait_event("listening")
        return listening["host"], listening["port"]

    @property
    def where(self) -> str:
        """The same, as agents are told it."""
        host, port = self.address
        return f"{host}:{port}"

    def ended(self, code: int) -> list[dict[str, Any]]:
        """All its events, once it has ended, in good order, with this exit code."""
        assert self.wait_exit() == code
        assert all(line.startswith("joinproto controller: ") for line in self.lines("stderr"))
        events = self.events()
        assert [each["event"] for each in events].count("finished") == 1
        assert matches(events[-1], "finished", {"exit_code": code})
        return events


def controller(
    *options: str,
    ranks: int = 1,
    target: bool = True,
    environment: Mapping[str, str] = {},
) -> ControllerProcess:
    """A controller on a free port, whose world is formed at `ranks` ranks."""
    argv = (*OURS, "controller", "--bind", "127.0.0.1:0", "--events", "json")
    world = ("--min-ranks", str(ranks), *(("--target-ranks", str(ranks)) if target else ()))
    return ControllerProcess(
        (*argv, *world, *options), environment=clean_environment(**environment)
    )


# -- a controller on a thread -----------------------------------------------------------------


class RunningController:
    """A `Controller` that runs on a thread; a context manager that ends it."""

    def __init__(self, **settings: Any) -> None:
        self._news = threading.Condition()
        self._events: list[dict[str, Any]] = []
        self._outcome: Report | BaseException | None = None
        self.texts: list[tuple[Severity, str]] = []
        self.controller = Controller(
            on_event=self._note, on_text=lambda *text: self.texts.append(text), **settings
        )
        self._thread = threading.Thread(target=self._run, name="controller")
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.controller.address

    @property
    def where(self) -> str:
        """The same, as agents are told it."""
        return "{}:{}".format(*self.address)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The events so far, in order; with `name`, those alone."""
        with self._news:
            return [event for event in self._events if name in (None, event["event"])]

    def wait_event(self, name: str, **fields: object) -> dict[str, Any]:
        """The first event of that name with those fields, past or to come."""

        def find() -> dict[str, Any] | None:
            return next((each for each in self._events if matches(each, name, fields)), None)

        with self._news:
            self._news.wait_for(lambda: find() or self._outcome, PATIENCE)
            found = find()
            assert found, f"no {name} with {fields} in {self._events}, {self._outcome!r}"
            return found

    def report(self) -> Report:
        """How the run ended, once it has."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"still runs: {self.events()}"
        if not isinstance(self._outcome, Report):
            raise AssertionError("the controller failed") from self._outcome
        return self._outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The second one waits for nobody.
        self.controller.stop("the test is over")
        self.controller.stop("the test is over")
        self._thread.join(PATIENCE)
        self.controller.close()
        if kind is None:
            self.report()

    def _note(self, event: Mapping[str, Any]) -> None:
        with self._news:
            self._events.append(checked(event))
            self._news.notify_all()

    def _run(self) -> None:
        try:
            self._outcome = self.controller.run()
        except BaseException as error:
            self._outcome = error
        with self._news:
            self._news.notify_all()


# -- a host -----------------------------------------------------------------------------------


class NoGpus:
    """Stands in for `joinproto.runtime.gpus.Detection`, and finds no NVIDIA software at once."""

    found: ClassVar[Inventory] = no_answer(State.ABSENT, "no NVIDIA software")

    def __init__(self, environ: Mapping[str, str], *, timeout: float) -> None:
        self.timeout = timeout

    def result(self) -> Inventory:
        return self.found

    def close(self) -> None:
        """Nothing is under way."""
