"""Worlds of one host to measure: an agent, ours or the published one, and what it runs.

The controller is as small as can be: it admits whoever dials and forms the world when it is told
to.  Ranks are shell commands, the same for every agent; they tell of themselves through one FIFO
(`$SAID`) and wait for word through another (`$GATE`).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench._common import DEADLINE, PEER, Link, listen
from interop.peers import agent_environment, agent_spec, binary, our_agent_argv
from interop.processes import MARK, ended, kill_marked, marked, variables
from joinproto.keys import OPEN, Salt
from joinproto.limits import SALT_BYTES
from joinproto.messages import Abort, Accept, Hello, WorldFormed
from joinproto.runtime.artifacts import build_envelope
from joinproto.runtime.descendants import descendants

HOST = "h"

RANK_VARIABLE = "FLODL_INTERNAL_LOCAL_RANK"
"""In the environment of every rank of every agent, and of nothing else."""

SETTLED = 0.5
"""Seconds between an agent's Accept and its world, as where other hosts are still to join."""

Spec = Mapping[str, object]


# -- agents -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """An agent to measure.

    Attributes:
        name: what it is called in figures.
        argv: its command line, for what its ranks run.
        library: name of a library that is loaded into it besides.
    """

    name: str
    argv: Callable[[str], Sequence[str | Path]]
    library: str | None = None

    def environment(self, spec: Spec, job: str, extra: Mapping[str, str]) -> dict[str, str]:
        """Its environment, for what its ranks run; they run without the library."""
        if self.library is None:
            return agent_environment(spec, rank=job, extra=extra)
        preload = {"LD_PRELOAD": self.library}
        return agent_environment(spec, rank=f"unset LD_PRELOAD; {job}", extra={**extra, **preload})


OURS = Contender("joinproto", lambda job: our_agent_argv("--wire", "2", rank=job))


def published(name: str) -> Contender:
    """The published agent.

    Raises:
        FileNotFoundError: it is not built.
    """
    peer = binary(PEER)
    return Contender(name, lambda _: [peer])


def linked(name: str) -> Contender:
    """The published agent with libtorch in it, as where it is deployed.

    Raises:
        FileNotFoundError: one of them is not there.
    """
    library = find_library("torch")
    if library is None:
        raise FileNotFoundError("libtorch is not installed (Debian: apt-get install libtorch1.13)")
    return Contender(name, published(name).argv, library)


# -- worlds -----------------------------------------------------------------------------------


class World:
    """A host that has joined and waits for its world; a context manager that ends all of it.

    Args:
        contender: its agent.
        job: the shell command of each rank.
        ranks: how many.
        out: the descriptor that is the agent's standard output.

    Attributes:
        link: the controller's end.
        agent: the agent's process number.
        agent_fd: a pidfd of the agent.
    """

    def __init__(
        self,
        contender: Contender,
        job: str,
        *,
        ranks: int,
        out: int = subprocess.DEVNULL,
        **extra: str,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.ranks = ranks
        self._stack = ExitStack()
        try:
            self._scratch = Path(
                self._stack.enter_context(tempfile.TemporaryDirectory(prefix="joinproto-bench-"))
            )
            self._said, self._gate = self._fifo("said"), self._fifo("gate")
            self._heard = b""
            self._start(contender, job, out, extra)
        except BaseException as error:
            self._explain(error)
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._explain(error)
        self._stack.close()

    # -- what the controller does -------------------------------------------------------------

    def form(self) -> float:
        """Form the world; returns the time just before."""
        envelope = build_envelope(
            controller_host="127.0.0.1",
            controller_port=1,
            world_size=self.ranks,
            num_workers=1,
            host=HOST,
            ranks=range(self.ranks),
            local_devices=range(self.ranks),
            salt=OPEN,
        )
        began = time.perf_counter()
        self.link.send(WorldFormed(envelope_hex=envelope))
        return began

    def abort(self) -> float:
        """Give the run up; returns the time just before."""
        began = time.perf_counter()
        self.link.send(Abort(reason="measured"))
        return began

    # -- what the ranks do --------------------------------------------------------------------

    def hear(self) -> list[str]:
        """One line of each rank, in the order in which they came.

        Raises:
            TimeoutError: they did not come in time.
        """
        until = time.monotonic() + DEADLINE
        while self._heard.count(b"\n") < self.ranks:
            if not select.select([self._said], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"of {self.ranks} ranks these were heard: {self._heard!r}")
            self._heard += os.read(self._said, select.PIPE_BUF)
        *lines, self._heard = self._heard.split(b"\n")
        return [line.decode() for line in lines]

    def let_go(self) -> None:
        """Let every rank that waits at the gate go on."""
        # Whichever bytes a rank reads, it stops at one line end.
        os.write(self._gate, b"\n" * self.ranks)

    def ranks_alive(self) -> int:
        """How many ranks there are, whoever their parent is."""
        return sum(RANK_VARIABLE in variables(pid) for pid in marked(self.mark))

    # -- what the agent does ------------------------------------------------------------------

    def processes(self) -> list[int]:
        """The agent, and helpers of its own."""
        below = descendants(self.agent)
        return [self.agent, *(pid for pid in below if not self._is_rank(pid))]

    def await_end(self) -> None:
        """Wait until the agent has ended.

        Raises:
            TimeoutError: it did not in time.
        """
        if not ended(self.agent, within=DEADLINE):
            raise TimeoutError("the agent does not end")

    # -- inside -------------------------------------------------------------------------------

    def _is_rank(self, pid: int) -> bool:
        environment = variables(pid)
        return RANK_VARIABLE in environment and environment.get(MARK) == self.mark

    def _fifo(self, name: str) -> int:
        path = self._scratch / name
        os.mkfifo(path)
        # For both ways, so that neither side waits for the other to open it, nor sees it end.
        fifo = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._stack.callback(os.close, fifo)
        return fifo

    def _start(self, contender: Contender, job: str, out: int, extra: Mapping[str, str]) -> None:
        listener = self._stack.enter_context(listen())
        spec = agent_spec(HOST, listener.getsockname()[1], range(self.ranks))
        fifos = {"SAID": str(self._scratch / "said"), "GATE": str(self._scratch / "gate")}
        # Closed when the processes have ended: the end of a link is something that agents heed.
        links = self._stack.enter_context(ExitStack())
        with open(self._scratch / "stderr", "wb") as err:
            self._process = subprocess.Popen(
                contender.argv(job),
                env=contender.environment(spec, job, {MARK: self.mark, **fifos, **extra}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._stack.callback(self._end)
        self.agent = self._process.pid
        self.agent_fd = os.pidfd_open(self.agent)
        links.callback(os.close, self.agent_fd)
        self.link = links.enter_context(Link(listener))
        hello = self.link.receive()
        assert isinstance(hello, Hello), hello
        self._admit()

    def _admit(self) -> None:
        salt = Salt(os.urandom(SALT_BYTES))
        ranks = tuple(range(self.ranks))
        wait = int(DEADLINE)
        self.link.send(Accept(ranks=ranks, salt_hex=salt.hex(), formation_wait_secs=wait))
        self.link.key = salt
        time.sleep(SETTLED)

    def _end(self) -> None:
        """Leave no process behind: not the agent, not its helpers, not its ranks."""
        with ExitStack() as stack:
            fds = []
            for pid in self.processes() if self._process.poll() is None else []:
                with suppress(ProcessLookupError):
                    fds.append(os.pidfd_open(pid))
                    stack.callback(os.close, fds[-1])
            self._process.kill()
            self._process.wait()
            kill_marked(self.mark)
            for fd in fds:
                # A helper has time to do what it is for before it is ended too.
                if not select.select([fd], [], [], DEADLINE)[0]:
                    signal.pidfd_send_signal(fd, signal.SIGKILL)

    def _explain(self, error: BaseException) -> None:
        with suppress(OSError, AttributeError):
            said = (self._scratch / "stderr").read_text(errors="replace")
            error.add_note(f"the agent said:\n{said}")
