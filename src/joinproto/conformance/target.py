"""The program under test as a process: how it is told its case, what it writes, how it ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

PLACEHOLDERS = (
    *("port", "min_ranks", "target_ranks", "join_timeout", "max_join_timeout"),
    *("salt_file", "dataset_sig", "helper", "admission"),
)
"""What a command may hold in braces."""

CASE_VARIABLE = "JOINPROTO_CASE"
HELPER_VARIABLE = "JOINPROTO_HELPER"

BYSTANDER_VARIABLE = "JOINPROTO_BYSTANDER"
"""Set where the helper runs as a process that is no concern of the target's."""

KEPT_STDERR = 16_384
FLOOD = 256 * 1024 * 1024
"""Bytes; a target that writes more in one case floods."""

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def placeholders_in(command: Sequence[str]) -> frozenset[str]:
    """The placeholders that a command holds."""
    return frozenset(name for word in command for name in _PLACEHOLDER.findall(word)) & frozenset(
        PLACEHOLDERS
    )


def check(command: Sequence[str]) -> None:
    """Refuse a command with a placeholder that there is not, or brackets that do not match.

    Raises:
        ValueError: saying which.
    """
    depth = 0
    for word in command:
        for name in _PLACEHOLDER.findall(word):
            if name not in PLACEHOLDERS:
                known = " ".join(f"{{{each}}}" for each in PLACEHOLDERS)
                raise ValueError(f"{{{name}}} is no placeholder; there are {known}")
        depth += word.startswith("[") - word.endswith("]")
        if depth not in (0, 1):
            break
    if depth != 0:
        raise ValueError("a group of words in [ ] is not closed, or stands in another")


def filled(
    command: Sequence[str], values: Mapping[str, object], helper: Sequence[str]
) -> list[str]:
    """A command with its placeholders filled in.

    Words between `[` and `]` are left out when a placeholder among them has no value in this case;
    a word that is `{helper}` alone becomes the words of the helper's command.
    """
    words: list[str] = []
    group: list[str] | None = None
    for word in command:
        if word.startswith("[") and group is None:
            group, word = [], word[1:]
        closes = group is not None and word.endswith("]")
        (words if group is None else group).append(word[:-1] if closes else word)
        if closes and group is not None:
            needs = placeholders_in(group)
            if all(values.get(name) is not None for name in needs - {"helper"}):
                words += group
            group = None
    return [part for word in words for part in _word(word, values, helper)]


def _word(word: str, values: Mapping[str, object], helper: Sequence[str]) -> list[str]:
    if word == "{helper}":
        return list(helper)
    known = {**values, "helper": shlex.join(helper)}

    def value(found: re.Match[str]) -> str:
        given = known.get(found[1], found[0])
        return "" if given is None else str(given)

    return [_PLACEHOLDER.sub(value, word)]


def environment_of(
    case: Mapping[str, object], helper: Sequence[str], scale: float, extra: Mapping[str, str | None]
) -> dict[str, str]:
    """The environment of the target: this one's without what speaks of roles, and the case's.

    A variable that is None in `extra` is left out.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLODL_")}
    kept.pop("JOINPROTO_SALT", None)
    kept[CASE_VARIABLE] = json.dumps(case)
    kept[HELPER_VARIABLE] = shlex.join(helper)
    kept["FLODL_NET_TIMEOUT_SCALE"] = f"{scale:g}"
    return {name: value for name, value in {**kept, **extra}.items() if value is not None}


def beside_bystander(argv: Sequence[str], helper: Sequence[str]) -> list[str]:
    """A command that runs a helper beside the target: in its process group, but not its child."""
    # What is started in ( ) belongs to nobody any more when the target takes the shell's place.
    bystander = f"{BYSTANDER_VARIABLE}=1 {shlex.join(helper)}"
    script = f'({bystander} </dev/null >/dev/null 2>&1 &); exec "$@"'
    return ["/bin/sh", "-c", script, "sh", *argv]


class Target:
    """A started target.

    Args:
        argv: its command line.
        environment: the whole of its environment.

    Raises:
        OSError: it cannot be started.

    Attributes:
        pid: its process.
        pidfd: readable when it has ended.
        code: how it ended, −N by signal N; None: it has not.
        stderr: the last of what it said there.
        written: bytes that it wrote in all.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            argv,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)
        self.pid = self._process.pid
        self.code: int | None = None
        self.written = 0
        self._partial = {"stdout": b"", "stderr": b""}
        self._tail = bytearray()
        for pipe in self.pipes.values():
            os.set_blocking(pipe.fileno(), False)

    @property
    def pipes(self) -> dict[str, IO[bytes]]:
        """What it writes to, by the name of the stream."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        return {"stdout": self._process.stdout, "stderr": self._process.stderr}

    @property
    def stderr(self) -> str:
        """The last of what it said there."""
        return self._tail.decode(errors="backslashreplace")

    def read(self, stream: str) -> list[str] | None:
        """Whole lines that can be read; None: the stream has ended."""
        try:
            data = os.read(self.pipes[stream].fileno(), 262144)
        except BlockingIOError:
            return []
        self.written += len(data)
        if stream == "stderr":
            self._tail += data
            del self._tail[:-KEPT_STDERR]
        if not data:
            return None
        *lines, rest = (self._partial[stream] + data).split(b"\n")
        self._partial[stream] = rest
        return [line.decode(errors="backslashreplace") for line in lines]

    def reap(self) -> int:
        """Take the code of a target that has ended."""
        self.code = self._process.wait()
        return self.code

    def signal(self, number: int) -> None:
        """Send it a signal; one that has ended gets none."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Kill it and what shares its session, and let go of its pipes."""
        if self.code is None:
            with suppress(ProcessLookupError):  # all of it has ended
                os.killpg(self._process.pid, signal.SIGKILL)
            self.reap()
        os.close(self.pidfd)
        for pipe in self.pipes.values():
            pipe.close()
