"""One question, in a process of its own and with a deadline, to code that may crash or hang.

GPU libraries do both.  The answer is all bytes that process writes, up to its end; what it left
running in its process group ends with it.  A process without threads forks, which costs 2 ms and
not the start of an interpreter; another starts a fresh one, since the fork of a process with
threads may find any lock held for ever.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

from joinproto.runtime import probe_child
from joinproto.runtime.environment import SALT_VARIABLE

MAX_ANSWER_BYTES = 1024 * 1024
"""A thousand devices are described in a tenth of it."""

REAP_WAIT = 1.0
"""Seconds a killed process gets to be gone.  One stuck inside the driver may never be; the kernel
hands it to init when the agent ends."""

_SECRET_PREFIXES = ("FLODL_INTERNAL_", SALT_VARIABLE)
"""Role variables are artifacts, and each kind of them may hold a salt."""

_BOOT = """
import os, sys
end = 4 + int(sys.argv[3])
sys.path[:] = sys.argv[4:end]
from joinproto.runtime.probe_child import run
run(sys.argv[2], sys.argv[end:], os.environ, int(sys.argv[1]), 1)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended.

    Attributes:
        output: what was written, to stdout and stderr alike.
        code: the exit code, -N when signal N ended it; None when that is not known.
        fault: "" or why it was stopped, such as "did not answer within 10 s".
    """

    output: bytes
    code: int | None
    fault: str = ""


class Probe:
    """A process that answers one question.  It runs from the moment this object is made.

    Ask for `outcome` once, or `close` it; either leaves nothing behind.

    Raises (when made):
        OSError: no process could be started.
    """

    def __init__(
        self, work: str, arguments: Sequence[str] = (), *, environ: Mapping[str, str]
    ) -> None:
        safe = {k: v for k, v in environ.items() if not k.startswith(_SECRET_PREFIXES)}
        self._reader, writer = os.pipe()
        try:
            self._pid = (_fork if _can_fork() else _spawn)(work, arguments, safe, writer)
            self._pidfd = _pidfd(self._pid)
        except BaseException:
            os.close(self._reader)
            raise
        finally:
            os.close(writer)

    def outcome(self, deadline: float, *, allowed: float) -> Outcome:
        """Wait for the end.

        Args:
            deadline: on `time.monotonic`'s clock; the process is killed then.
            allowed: the seconds to name in the fault.
        """
        try:
            return self._collect(deadline, f"did not answer within {allowed:g} s")
        finally:
            self.close()

    def _collect(self, deadline: float, late: str) -> Outcome:
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        poll.register(self._pidfd, select.POLLIN)
        output = bytearray()
        while (left := deadline - time.monotonic()) > 0:
            ready = {fd for fd, _ in poll.poll(ceil(left * 1000))}
            if self._reader in ready:
                chunk = os.read(self._reader, 65536)
                output += chunk
                if not chunk:
                    poll.unregister(self._reader)
                if len(output) > MAX_ANSWER_BYTES:
                    return Outcome(bytes(output), None, f"wrote over {MAX_ANSWER_BYTES} bytes")
            elif self._pidfd in ready:
                # It has ended and the pipe is empty.  That the pipe is still open says only that
                # something it started holds it.
                return Outcome(bytes(output), self._code())
        return Outcome(bytes(output), None, late)

    def _code(self) -> int | None:
        try:
            # Not reaped yet: until then no other process or group can have its number.
            end = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return None
        if end is None:
            return None
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def close(self) -> None:
        """Kill what is still there, reap it, and close the descriptors.  Safe to call again."""
        if self._pidfd < 0:
            return
        try:
            self._end()
        finally:
            os.close(self._reader)
            os.close(self._pidfd)
            self._reader = self._pidfd = -1

    def _end(self) -> None:
        try:
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return  # reaped elsewhere (SIGCHLD is ignored): its number may be another's by now
        with suppress(OSError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(OSError):  # it may have left its group
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if poll.poll(ceil(REAP_WAIT * 1000)):
            os.waitpid(self._pid, os.WNOHANG)


def _can_fork() -> bool:
    """No thread of ours or of a library's, and no NVML in use that a fork would share."""
    try:
        return len(os.listdir("/proc/self/task")) == 1 and "pynvml" not in sys.modules
    except OSError:
        return False


def _fork(work: str, arguments: Sequence[str], environ: Mapping[str, str], writer: int) -> int:
    parent = os.getpid()
    # A handler of ours that ran in the child before it is set apart would do our work twice.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        pid = os.fork()
        if pid == 0:
            probe_child.run(work, arguments, environ, parent, writer)
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        except BaseException:  # from the handler of a signal that came meanwhile
            if pid > 0:
                _discard(pid)
            raise
    with suppress(OSError):
        os.setpgid(pid, pid)  # the child does it too; whoever is first
    return pid


def _spawn(work: str, arguments: Sequence[str], environ: Mapping[str, str], writer: int) -> int:
    flags = ["-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
    boot = [sys.executable, *flags, "-c", _BOOT, str(os.getpid()), work]
    return os.posix_spawn(
        sys.executable,
        [*boot, str(len(sys.path)), *sys.path, *arguments],
        dict(environ),
        file_actions=[
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
        setpgroup=0,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD),
    )


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        _discard(pid)
        raise


def _discard(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
