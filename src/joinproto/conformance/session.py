"""Starts the target for one case, plays the case, and ends everything."""

from __future__ import annotations

import json
import os
import random
import secrets
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from joinproto.conformance.case import Case
from joinproto.conformance.loopback import LoopbackWorld, Slot
from joinproto.conformance.marks import end_marked
from joinproto.conformance.play import Outcome, play
from joinproto.conformance.results import Happening
from joinproto.conformance.target import (
    CASE_VARIABLE,
    Target,
    beside_bystander,
    environment_of,
    filled,
)
from joinproto.conformance.world import Keys, World
from joinproto.keys import OPEN, Salt
from joinproto.limits import SALT_BYTES
from joinproto.runtime.environment import AGENT_VARIABLE

PORTS = range(20_000, 32_000)
"""Below those from which the system takes the ports of outgoing connections, so that none of these
stands on a port that a target is just about to listen on."""

HOST = "target"
"""The name that an agent under test joins under."""


class CannotStart(Exception):
    """The target cannot be started; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for all cases of a run.

    Attributes:
        role: agent or controller: what is under test.
        command: of the target; empty: it is reached at `address`.
        address: where a controller that is already up is reached; None: it is started.
        scale: of every network deadline.
        seed: of what is left to chance.
        extra: environment for the target.
        salt: the pre-shared salt of a controller that is already up.
    """

    role: str
    command: tuple[str, ...] = ()
    address: tuple[str, int] | None = None
    scale: float = 1.0
    seed: int = 0
    extra: Mapping[str, str] | None = None
    salt: Salt | None = None


@dataclass(frozen=True, kw_only=True)
class Played:
    """A case that was played.

    Attributes:
        outcome: what it came to.
        happenings: what was seen.
        stderr: the last of what the target said there.
        seconds: how long it took.
    """

    outcome: Outcome
    happenings: tuple[Happening, ...]
    stderr: str
    seconds: float


def play_for_real(
    settings: Settings,
    case: Case,
    *,
    wire: int,
    admission: str,
    slot: Slot | None = None,
    given_up: Callable[[], bool] = lambda: False,
) -> Played:
    """Start the target for a case, and play it.

    Args:
        settings: what holds for all cases.
        case: the case.
        wire: the version that the suite speaks.
        admission: open or pre-shared.
        slot: what is given up while the case only waits.
        given_up: whether the whole run is to end.

    Raises:
        CannotStart: the command of the target cannot be run.
        Cancelled: the run was given up.
    """
    keys = make_keys(settings, case, admission)
    world = LoopbackWorld(
        keys, host=_host(case), scale=settings.scale, slot=slot, given_up=given_up
    )
    mark = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="joinproto-case-") as folder:
        try:
            world.start = partial(
                start_target, settings, case, world, admission, mark, Path(folder)
            )
            world.start()
            outcome = play(case, world, wire)
            stderr = "" if world.target is None else world.target.stderr
            return Played(
                outcome=outcome,
                happenings=world.trace.happenings,
                stderr=stderr,
                seconds=world.now(),
            )
        finally:
            world.end()
            if settings.command:
                end_marked(CASE_VARIABLE, mark)


def make_keys(settings: Settings, case: Case, admission: str) -> Keys:
    """The secrets of a case: of no other case, and the same whenever it is run with this seed."""
    chance = random.Random(f"{settings.seed} {case.id} {admission}")
    session, other = (Salt(chance.randbytes(SALT_BYTES)) for _ in range(2))
    if settings.salt is not None:
        session = settings.salt
    is_open = admission == "open"
    return Keys(join=OPEN if is_open else session, session=session, other=other, open=is_open)


def _host(case: Case) -> str:
    return str(case.setup.get("host", HOST))


def start_target(
    settings: Settings,
    case: Case,
    world: LoopbackWorld,
    admission: str,
    mark: str,
    folder: Path,
) -> None:
    """Start the target of a case in its world; one that is up already only gets its address.

    Args:
        settings: what holds for all cases.
        case: the case.
        world: where it is to be seen.
        admission: open or pre-shared.
        mark: what all that it starts will carry in its environment.
        folder: for files of this case.

    Raises:
        CannotStart: its command cannot be run.
    """
    if settings.address is not None:
        world.address = settings.address
        return
    if settings.role == "agent":
        world.reserve()
        if case.setup.get("listen", True):
            world.listen()
    else:
        world.address = ("127.0.0.1", free_port())
    values = case_values(case, world, admission, folder)
    helper = world.crew.command if case.setup.get("helper", True) else (str(folder / "none"),)
    environment = environment_of(
        {**values, "case": case.id, "mark": mark},
        helper,
        settings.scale,
        {**(settings.extra or {}), **_variables(settings, case, world, folder)},
    )
    argv = filled(settings.command, values, helper)
    if case.setup.get("bystander"):
        argv = beside_bystander(argv, world.crew.command)
    try:
        target = Target(argv, environment)
        world.watch_target(target, reads=case.setup.get("read_output", True))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CannotStart(f"cannot run {argv[0]}: {reason}") from None


def case_values(
    case: Case, world: LoopbackWorld, admission: str, folder: Path
) -> dict[str, object]:
    """What the target is told of its case, by the name of each placeholder; null: nothing."""
    setup = case.setup
    quorum = setup.get("min_ranks", 1)
    return {
        "port": world.address[1],
        "min_ranks": quorum,
        "target_ranks": setup.get("target_ranks", quorum),
        "join_timeout": setup.get("join_timeout", 300),
        "max_join_timeout": setup.get("max_join_timeout", 600),
        "salt_file": None if admission == "open" else _salt_file(folder, world.keys.session),
        "dataset_sig": setup.get("dataset_sig"),
        "admission": admission,
    }


def _salt_file(folder: Path, salt: Salt) -> str:
    path = folder / "salt"
    path.touch(mode=0o600)
    path.write_text(f"{salt.hex()}\n")
    return str(path)


def _variables(
    settings: Settings, case: Case, world: LoopbackWorld, folder: Path
) -> dict[str, str | None]:
    """Environment that only this case has."""
    variables: dict[str, str | None] = dict(case.setup.get("env", {}))
    if hanging := case.setup.get("hanging"):
        variables["PATH"] = f"{_hanging_tools(folder, hanging)}:{os.environ.get('PATH', '')}"
    if settings.role == "agent" and AGENT_VARIABLE not in variables:
        variables[AGENT_VARIABLE] = spec_variable(case, world)
    return variables


def _hanging_tools(folder: Path, names: Sequence[str]) -> Path:
    """A folder with programs of these names that never end."""
    tools = folder / "tools"
    tools.mkdir()
    for name in names:
        (tools / name).write_text("#!/bin/sh\nexec sleep 600\n")
        (tools / name).chmod(0o700)
    return tools


def spec_variable(case: Case, world: World) -> str:
    """What the target finds its spec in: hex of JSON, or what the case has in place of it."""
    text: str = case.setup.get("spec_text", json.dumps(spec_of(case, world)))
    if "spec_text" in case.setup:
        address, port = world.address
        for name, value in (("$host", world.host), ("$address", address), ("$port", str(port))):
            text = text.replace(name, value)
    # A lone surrogate stands for a byte that is no UTF-8.
    digits = text.encode("utf-8", "surrogateescape").hex()
    form: str = case.setup.get("spec_hex", "$hex")
    return form.replace("$hex", digits).replace("$HEX", digits.upper())


def spec_of(case: Case, world: World) -> dict[str, Any]:
    """The AgentSpec of a case; a field that its `spec` sets to null is left out."""
    spec: dict[str, Any] = {
        "host": world.host,
        "controller_host": world.address[0],
        "controller_port": world.address[1],
        "local_devices": [0],
    }
    if not world.keys.open:
        spec["salt_hex"] = world.keys.session.hex()
    spec |= case.setup.get("spec", {})
    return {name: value for name, value in spec.items() if value is not None}


def free_port() -> int:
    """A port on which a target can listen.

    Raises:
        CannotStart: there is none.
    """
    chance = random.SystemRandom()
    for port in chance.sample(PORTS, 200):
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise CannotStart("no port of this machine is free for the target")
