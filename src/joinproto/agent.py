"""The worker agent as a library: join a world, and run what a host is to run in it.

`run_agent` is the whole agent.  `join_world` stops when the world has formed and hands the link
over; `join_and_spawn_local` also starts the children, as direct children of the caller, and lets
the link go (for a launcher that has a host of its own).
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from joinproto.effects import Severity, Spawn
from joinproto.errors import ConfigError, JoinprotoError, Rejected
from joinproto.grammar import WIRES
from joinproto.keys import Salt
from joinproto.limits import GPU_PROBE, GRACE, SIGNATURE_BYTES
from joinproto.machines.agent import Plan
from joinproto.messages import Hello
from joinproto.record import Record
from joinproto.runtime.addresses import format_address
from joinproto.runtime.host import HostRunner
from joinproto.runtime.job import Job
from joinproto.runtime.joiner import Joiner
from joinproto.runtime.loop import Loop
from joinproto.runtime.output import Output
from joinproto.runtime.reports import Reports, observing
from joinproto.runtime.scale import timeout_scale
from joinproto.runtime.spec import AgentSpec

if TYPE_CHECKING:
    from joinproto.runtime.gpus import Detection
    from joinproto.runtime.local import LocalChild
    from joinproto.runtime.notify import Notifier
    from joinproto.runtime.observe import Observer
    from joinproto.runtime.streams import OutputSettings
    from joinproto.runtime.torch import TorchSettings

Say: TypeAlias = Callable[[Severity, str], None]

NEWEST_FIRST = tuple(sorted(WIRES, reverse=True))
"""The wire versions that an agent tries, each on a dial of its own, when it is told none."""


def _silent(severity: Severity, text: str) -> None:
    """Says nothing."""


class Devices(Record):
    """What a host offers: device ids, 0 to 255, and a label for each."""

    ids: tuple[int, ...]
    labels: tuple[str, ...]


def find_devices(
    spec: AgentSpec,
    *,
    scale: float,
    say: Say = _silent,
    detection: Detection | None = None,
) -> Devices:
    """The devices of the spec, or every GPU of this host, with their labels.

    Args:
        spec: what names the devices, if anything does.
        scale: of the time that looking for GPUs may take.
        say: takes what is odd about them.
        detection: one that is under way already.

    Raises:
        ConfigError: there are none (fault `no-devices`).
        HostError: none are named, and what there is cannot be told.
    """
    from joinproto.runtime.gpus import resolve

    found = resolve(spec.local_devices, os.environ, timeout=GPU_PROBE * scale, detection=detection)
    for warning in found.warnings:
        say(Severity.WARNING, warning)
    return Devices(ids=found.ids, labels=found.labels)


def plan_for(
    spec: AgentSpec,
    devices: Devices,
    *,
    wires: Sequence[int] = NEWEST_FIRST,
    nccl_version: tuple[int, int, int] | None = None,
    grace: float = GRACE,
    scale: float = 1.0,
) -> Plan:
    """What an agent for this spec sets out to do.

    Raises:
        ConfigError: no devices are offered.
        InvalidMessage: a value does not fit the wire.
    """
    hello = Hello(
        host=spec.host,
        local_devices=devices.ids,
        gpus=devices.labels,
        libtorch=spec.libtorch,
        dataset_sig=spec.dataset_sig or bytes(SIGNATURE_BYTES),
        run_id=spec.run_id,
        nccl_version=nccl_version,
        model_sig=spec.model_sig,
    )
    return Plan(hello=hello, wires=tuple(wires), salt=spec.salt, scale=scale, grace=grace)


def environment_scale(say: Say = _silent) -> float:
    """The deadline scale of the environment; a bad value is told once, and 1 is used."""
    scale, warning = timeout_scale(os.environ)
    if warning is not None:
        say(Severity.WARNING, warning)
    return scale


# -- the whole agent --------------------------------------------------------------------------


def run_agent(
    spec: AgentSpec,
    command: Sequence[str],
    *,
    relay_command: Sequence[str] | None = None,
    wires: Sequence[int] = NEWEST_FIRST,
    nccl_version: tuple[int, int, int] | None = None,
    grace: float = GRACE,
    scale: float | None = None,
    extra_env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    verbose: bool = False,
    output: OutputSettings | None = None,
    torch: TorchSettings | None = None,
    reports: Reports | None = None,
    detection: Detection | None = None,
) -> None:
    """Join a world, run one process per device in it, and return when all of them have ended.

    Children's output goes to this process's standard output and error.  While it runs, SIGTERM,
    SIGINT and SIGHUP end it cleanly (when called on the main thread).

    Args:
        spec: who this host is and where the controller is.
        command: what each rank runs.
        relay_command: what the relay runs; the same when None.
        wires: the wire versions to try, in this order.
        nccl_version: told to the controller (wire 4).
        grace: seconds between SIGTERM and SIGKILL when children are stopped, one for all.
        scale: of every network deadline; that of FLODL_NET_TIMEOUT_SCALE when None.
        extra_env: laid over every child's environment.
        cwd: where children run.
        verbose: also tell what only matters when something is being looked for.
        output: what becomes of children's output; None: prefixed lines, and readers are waited for.
        torch: ranks also get the variables of torch.distributed.
        reports: who else is told how the agent is.
        detection: a search for GPUs that is under way already.

    Raises:
        Rejected: the controller turned this host away.
        Stopped: a signal ended it.
        RemoteError: the controller is out of reach, broke the protocol, aborted or vanished.
        HostError: a child could not be started or ended, or the relay died.
        ConfigError: there is nothing to offer or to run.
    """
    if not command:
        raise ConfigError("there is no command to run; name one behind --", fault="command")
    loop = Loop()
    runner: HostRunner | None = None

    def resumed() -> None:
        if runner is not None:
            runner.resume()

    with ExitStack() as stack:
        stack.callback(loop.close)
        mute = reports is not None and reports.mute
        lines = Output(loop, out=1, err=2, resumed=resumed, mute=mute)
        stack.callback(lines.close)
        observer = None
        if reports is not None:
            observer = stack.enter_context(observing(reports, spec, loop, lines))
        say = _teller(lines, observer)
        scale = environment_scale(say) if scale is None else scale
        devices = find_devices(spec, scale=scale, say=say, detection=detection)
        plan = plan_for(
            spec, devices, wires=wires, nccl_version=nccl_version, grace=grace, scale=scale
        )
        runner = HostRunner(
            loop,
            plan,
            _job(spec, command, relay_command, extra_env, cwd, torch),
            lines,
            settings=output,
            observer=observer,
            verbose=verbose,
        )
        say(Severity.INFO, _opening(spec, devices))
        error = runner.run()
        if error is not None:
            raise error


def _teller(output: Output, observer: Observer | None) -> Say:
    def say(severity: Severity, text: str) -> None:
        if severity > Severity.DEBUG:
            output.say(text)
            if observer is not None:
                observer.told(severity, text)

    return say


def _opening(spec: AgentSpec, devices: Devices) -> str:
    where = format_address(spec.controller_host, spec.controller_port)
    trust = "open" if spec.salt is None else "pre-shared salt"
    offered = ", ".join(map(str, devices.ids))
    return f"host {spec.host!r} dialing {where} with device(s) {offered} (admission: {trust})"


def inherited_environment() -> dict[str, str]:
    """The environment that children inherit: this process's, as it was given to it.

    Under a C locale Python puts LC_CTYPE into its own environment, which would change a rank's
    locale; children are to find what they would find without Python in between.
    """
    environ = dict(os.environ)
    with open("/proc/self/environ", "rb") as given:
        if not any(entry.startswith(b"LC_CTYPE=") for entry in given.read().split(b"\0")):
            environ.pop("LC_CTYPE", None)
    return environ


def _job(
    spec: AgentSpec,
    command: Sequence[str],
    relay_command: Sequence[str] | None,
    extra_env: Mapping[str, str] | None,
    cwd: str | None,
    torch: TorchSettings | None = None,
) -> Job:
    return Job(
        controller=(spec.controller_host, spec.controller_port),
        command=tuple(command),
        relay_command=None if relay_command is None else tuple(relay_command),
        environ=inherited_environment(),
        extra=dict(extra_env or {}),
        directory=cwd,
        data_path=spec.data_path,
        gpu_ram_share=spec.gpu_ram_share,
        torch=torch,
    )


def run_persistently(
    stint: Callable[[int], None], say: Say = _silent, notifier: Notifier | None = None
) -> None:
    """Run stints of an agent until one ends in a way that no restart cures.

    Args:
        stint: one whole agent, such as a call of `run_agent`; told how many came before it.
        say: takes what ended each stint, and when the next one begins.
        notifier: the service manager, told the same and given signs of life between stints.

    Raises:
        JoinprotoError: what ended the last stint: a setting that is wrong, or a signal.
    """
    # Late: only agents that persist need it.
    from joinproto.runtime.persist import Backoff, goes_on, pause

    backoff = Backoff()
    for number in count():
        began = time.monotonic()
        rejected = False
        how = "the run is over"
        try:
            stint(number)
        except JoinprotoError as error:
            if not goes_on(error):
                raise
            rejected = isinstance(error, Rejected)
            how = str(error)
        seconds = backoff.after(time.monotonic() - began, rejected=rejected)
        text = f"{how}; dialing again in {seconds:g} s"
        say(Severity.WARNING, text)
        if notifier is not None:
            notifier.send(f"STATUS={text}")
        pause(seconds, notifier)


# -- joining alone ----------------------------------------------------------------------------


class JoinedWorld(Record):
    """A world that this host is part of.

    Attributes:
        ranks: its global ranks, in the order of its devices.
        devices: the devices that were offered.
        salt: the session salt.
        envelope_hex: what each rank is to be handed, as it came.
        relay_spec_hex: what the relay is to be handed; None when no relay is asked for.
        wire: the version that the controller answered in.
        link: the connection to the controller, blocking; closing it says that this host is gone.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"envelope_hex", "relay_spec_hex"})

    ranks: tuple[int, ...]
    devices: tuple[int, ...]
    salt: Salt
    envelope_hex: str
    relay_spec_hex: str | None
    wire: int
    link: socket.socket

    def spawns(self) -> tuple[Spawn, ...]:
        """The children of this host, in the order in which they are to be started."""
        relay = [(self.relay_spec_hex, None, None, None)] if self.relay_spec_hex is not None else []
        ranks = [
            (self.envelope_hex, rank, local, device)
            for local, (rank, device) in enumerate(zip(self.ranks, self.devices, strict=True))
        ]
        return tuple(
            Spawn(
                slot=slot,
                artifact_hex=artifact or "",
                rank=rank,
                local_rank=local,
                device=device,
                wire=self.wire,
            )
            for slot, (artifact, rank, local, device) in enumerate((*relay, *ranks))
        )


def join_world(
    spec: AgentSpec,
    *,
    wires: Sequence[int] = NEWEST_FIRST,
    nccl_version: tuple[int, int, int] | None = None,
    scale: float | None = None,
    say: Say = _silent,
) -> JoinedWorld:
    """Join a world and wait until it has formed; nothing is started.

    Args:
        spec: who this host is and where the controller is.
        wires: the wire versions to try, in this order.
        nccl_version: told to the controller (wire 4).
        scale: of every network deadline; that of FLODL_NET_TIMEOUT_SCALE when None.
        say: takes what there is to tell on the way.

    Raises:
        RemoteError: as `run_agent`.
        ConfigError: no devices are offered.
    """
    scale = environment_scale(say) if scale is None else scale
    devices = find_devices(spec, scale=scale, say=say)
    plan = plan_for(spec, devices, wires=wires, nccl_version=nccl_version, scale=scale)
    loop = Loop()
    joiner = Joiner(loop, plan, (spec.controller_host, spec.controller_port), say)
    try:
        joiner.join()
        context = joiner.connection.context
        # An Abort may come right behind WorldFormed; whoever holds the link would never hear of it.
        error = joiner.error or context.failure
        if error is not None:
            raise error
        assert context.formed is not None
        return JoinedWorld(
            ranks=context.ranks,
            devices=devices.ids,
            salt=joiner.connection.key,
            envelope_hex=context.formed.envelope_hex,
            relay_spec_hex=context.formed.relay_spec_hex,
            wire=context.version,
            link=joiner.detach(),
        )
    finally:
        joiner.close()
        loop.close()


def join_and_spawn_local(
    spec: AgentSpec,
    command: Sequence[str],
    *,
    relay_command: Sequence[str] | None = None,
    extra_env: Mapping[str, str] | None = None,
    wires: Sequence[int] = NEWEST_FIRST,
    nccl_version: tuple[int, int, int] | None = None,
    scale: float | None = None,
    cwd: str | None = None,
    say: Say = _silent,
) -> tuple[LocalChild, ...]:
    """Join a world, start this host's children for the caller, and let the link go.

    The controller must know the host as a local one: it takes the end of its link for benign, and
    the caller tells it the ends of the ranks (`Controller.rank_exited`).

    Args:
        spec: who this host is and where the controller is.
        command: what each rank runs.
        relay_command: what the relay runs; the same when None.
        extra_env: laid over every child's environment.
        wires: the wire versions to try, in this order.
        nccl_version: told to the controller (wire 4).
        scale: of every network deadline; that of FLODL_NET_TIMEOUT_SCALE when None.
        cwd: where children run.
        say: takes what there is to tell on the way.

    Returns:
        The relay (where one is asked for) and the ranks, in order.  The caller waits for them and
        ends them; their output is forwarded by a thread of this process.

    Raises:
        HostError: a child could not be started; none is left.
        RemoteError: as `run_agent`.
        ConfigError: there is nothing to offer or to run.
    """
    from joinproto.runtime.local import start_all

    if not command:
        raise ConfigError("there is no command to run", fault="command")
    world = join_world(spec, wires=wires, nccl_version=nccl_version, scale=scale, say=say)
    with world.link:
        job = _job(spec, command, relay_command, extra_env, cwd)
        return start_all(spec.host, world.spawns(), job)
