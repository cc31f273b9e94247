"""Processes that a test starts: read line by line, waited for on events, and all ended with it.

A world has many processes, and most of them are grandchildren: a launcher runs agents, these run
ranks, each in a session of its own.  What a test starts therefore carries a mark in its
environment, which descendants inherit; closing a `Watched` kills whatever still has its mark.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self, TypeVar

MARK = "JOINPROTO_INTEROP_MARK"
"""The variable that tells whose descendant a process is."""

PATIENCE = 30.0
"""Seconds that anything expected may take: far beyond what it does, so that a miss is a failure."""

SETTLE = 5.0
"""Seconds for what is bound to happen: a killed process ends, the rest of a pipe is read."""

Stream = Literal["stdout", "stderr"]
T = TypeVar("T")


class Missed(AssertionError):
    """What a process was expected to say or do did not happen; the text tells all that it said."""


@dataclass(frozen=True)
class Line:
    """One line of output, without its LF; `at` is `time.monotonic()` when it was read."""

    at: float
    stream: Stream
    text: str


def clean_environment(**extra: str) -> dict[str, str]:
    """A small environment of known content: the few variables that programs need, and `extra`."""
    kept = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return {name: os.environ[name] for name in kept if name in os.environ} | extra


class Watched:
    """A running process whose output is collected as it comes; a context manager that ends it.

    `environment` is all of its environment but the mark; stdin is empty.
    """

    def __init__(self, argv: Sequence[str | Path], *, environment: Mapping[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        self._said = threading.Condition()
        self._lines: list[Line] = []
        self._open_streams = 2
        self._process = subprocess.Popen(
            argv,
            env={**environment, MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._readers = [self._reader("stdout"), self._reader("stderr")]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill what is left of the process and of its descendants, and let go of its pipes."""
        kill_marked(self.mark)
        self._process.wait(SETTLE)
        for reader in self._readers:
            reader.join(SETTLE)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    # -- what it said -------------------------------------------------------------------------

    def lines(self, stream: Stream | None = None) -> list[str]:
        """The lines so far, in the order in which they were read."""
        return [line.text for line in self.timed_lines(stream)]

    def timed_lines(self, stream: Stream | None = None) -> list[Line]:
        """The lines so far, each with the time at which it was read."""
        with self._said:
            return [line for line in self._lines if stream in (None, line.stream)]

    def wait_line(self, pattern: str, *, within: float = PATIENCE) -> re.Match[str]:
        """The first line that `pattern` is found in, among those said already and those to come.

        Raises:
            Missed: none came `within` seconds, or before the process closed its output.
        """
        wanted = re.compile(pattern)

        def find() -> re.Match[str] | None:
            return next(filter(None, (wanted.search(line.text) for line in self._lines)), None)

        return self.wait_for(find, f"line with {pattern!r}", within=within)

    def wait_for(self, find: Callable[[], T | None], what: str, *, within: float = PATIENCE) -> T:
        """What `find` makes of the output; it is asked again whenever there is more of it.

        Raises:
            Missed: it found nothing `within` seconds, or before the process closed its output.
        """
        deadline = time.monotonic() + within
        with self._said:
            while (found := find()) is None:
                left = deadline - time.monotonic()
                if left <= 0 or not self._open_streams:
                    raise Missed(self._tell(f"no {what}"))
                self._said.wait(left)
            return found

    # -- how it ended -------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        self._process.send_signal(number)

    def wait_exit(self, *, within: float = PATIENCE) -> int:
        """Wait until the process has ended and its output is read to the end.

        Returns: its exit code, or minus the signal that killed it.

        Raises:
            Missed: it still runs after `within` seconds.
        """
        if not ended(self.pid, within=within):
            raise Missed(self._tell("no end"))
        for reader in self._readers:
            reader.join(SETTLE)
        return self._process.wait()

    # -- inside -------------------------------------------------------------------------------

    def _reader(self, stream: Stream) -> threading.Thread:
        pipe = getattr(self._process, stream)
        reader = threading.Thread(target=self._read, args=(pipe, stream), daemon=True)
        reader.start()
        return reader

    def _read(self, pipe: IO[bytes], stream: Stream) -> None:
        for raw in pipe:
            text = raw.removesuffix(b"\n").decode(errors="replace")
            with self._said:
                self._lines.append(Line(time.monotonic(), stream, text))
                self._said.notify_all()
        with self._said:
            self._open_streams -= 1
            self._said.notify_all()

    def _tell(self, miss: str) -> str:
        said = "".join(f"\n  {line.stream}: {line.text}" for line in self.timed_lines())
        return f"{miss} from {self._process.args!r}, which said:{said or ' nothing'}"


def ended(pid: int, *, within: float = PATIENCE) -> bool:
    """Whether the process `pid` is gone, or ends `within` seconds; waits on it, not on a clock."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(within * 1000))


def marked(mark: str) -> list[int]:
    """The pids of all running processes that carry `mark`."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if _carries(pid, mark)]


def kill_marked(mark: str) -> None:
    """Kill every process that carries `mark`, until none is left.

    Raises:
        RuntimeError: they come faster than they can be killed.
    """
    for _ in range(100):
        pids = marked(mark)
        if not pids:
            return
        for pid in pids:
            _kill(pid, mark)
    raise RuntimeError(f"still there after SIGKILL: {pids}")


def variables(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty for one that is not to be looked at.

    That is one that has ended, reaped or not, or is somebody else's.
    """
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, equals, value in pairs if equals}


def _carries(pid: int, mark: str) -> bool:
    return variables(pid).get(MARK) == mark


def _kill(pid: int, mark: str) -> None:
    with suppress(ProcessLookupError), ExitStack() as stack:
        descriptor = os.pidfd_open(pid)
        stack.callback(os.close, descriptor)
        # The number may have gone to another process since it was listed; the descriptor cannot.
        if _carries(pid, mark):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            ended(pid, within=SETTLE)
