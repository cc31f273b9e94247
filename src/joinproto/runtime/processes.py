"""Child processes: started without Python code between fork and exec, watched by descriptor.

A child leads a session and a process group of its own, so that what it starts can be signalled with
it.  It is reaped only when nothing will be signalled any more: until then its number cannot belong
to another process.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joinproto.errors import CommandNotFound, SpawnFailed

REAP_WAIT = 1.0


@dataclass(eq=False, kw_only=True)
class Child:
    """A process of ours.

    Attributes:
        pid: its number, and that of its process group.
        pidfd: ready when it has ended.
        stdout: reading end of its standard output, non-blocking.
        stderr: reading end of its standard error, non-blocking.
        code: how it ended; −N for signal N; None while it runs.
    """

    pid: int
    pidfd: int
    stdout: int
    stderr: int
    code: int | None = None
    _reaped: bool = False

    def ended(self) -> bool:
        """Whether it has ended; takes down how, and leaves it to be reaped later."""
        if self.code is None:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                exited = found.si_code == os.CLD_EXITED
                self.code = found.si_status if exited else -found.si_status
        return self.code is not None

    def signal_group(self, number: int) -> None:
        """Send a signal to everything in its process group."""
        if self._reaped:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # Nobody is left in the group, or those left have become somebody else's.
            return

    def reap(self) -> None:
        """End what is left of its group and forget it.

        Waits `REAP_WAIT` seconds for a process that was still running; one that outlasts even that
        is left to whoever inherits it.
        """
        self.signal_group(signal.SIGKILL)
        if self._reaped:
            return
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        poll.poll(REAP_WAIT * 1000)
        self.forget()

    def forget(self) -> None:
        """Let its number go; from here on nothing is signalled."""
        self._reaped = True
        os.waitpid(self.pid, os.WNOHANG)
        os.close(self.pidfd)


def start(argv: Sequence[str], *, environment: Mapping[str, str], directory: str | None) -> Child:
    """Start a child with standard input from nowhere and output into pipes.

    Raises:
        CommandNotFound: there is no such command, or it may not be executed.
        SpawnFailed: anything else stood in the way; nothing was started.
    """
    # Late: an agent needs it only when its world has formed.
    import subprocess

    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd=directory,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _told(error, argv[0], directory) from None
    # From here on the process is ours to wait for; the object must not do it behind our back.
    process.returncode = 0
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = (_own(pipe.fileno()) for pipe in (process.stdout, process.stderr))
    process.stdout.close()
    process.stderr.close()
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError as error:
        os.killpg(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        os.close(stdout)
        os.close(stderr)
        raise _told(error, argv[0], directory) from None
    return Child(pid=process.pid, pidfd=pidfd, stdout=stdout, stderr=stderr)


def _own(fd: int) -> int:
    own = os.dup(fd)
    os.set_blocking(own, False)
    return own


def _told(error: OSError | ValueError, command: str, directory: str | None) -> SpawnFailed:
    if not isinstance(error, OSError):
        # A NUL, or text that the system's encoding lacks: the variable's value is not repeated.
        return SpawnFailed(f"{command}: an argument or a variable cannot be passed on")
    cause = error.strerror or str(error)
    if directory is not None and error.filename == directory:
        return CommandNotFound(f"directory {directory}: {cause}")
    if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC):
        return CommandNotFound(f"{command}: {cause}")
    return SpawnFailed(f"{command}: {cause}")
