"""What the journal of a run says: read to its last whole line, checked, and told to people.

`joinproto.runtime.journal` writes it, and says what stands in it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from joinproto.errors import ConfigError
from joinproto.record import Record
from joinproto.runtime.addresses import format_address
from joinproto.runtime.files import open_at_once
from joinproto.runtime.signals import how_ended

VERSION: Final = 1
"""Of the format; a reader takes no other."""

LINE_BYTES: Final = 64 * 1024 * 1024
"""No line is longer: `formed`, the longest, names every host of the world once."""

BEGINNING: Final = b'{"event": "run", "time": "'
"""What every journal begins with; a file that does not is some other file, and is left alone."""


class Entry(Record):
    """A host as it was admitted; `peer` is its address."""

    host: str
    ranks: tuple[int, ...]
    devices: tuple[int, ...]
    wire: int
    peer: str


class Past(Record):
    """What a journal says of its run.

    Attributes:
        run: the id; None: the file holds no whole line, so nobody was admitted.
        listening: the address that was bound; None: that was not told.
        members: hosts that are in the world, or were in the window: in the order of admission.
        formed: a world was.
        world_size: its ranks; None without a world.
        exits: rank → code, −N for signal N.
        lost: host → cause, of hosts that were lost after the world had formed.
        ended: the outcome; None: the run did not come to its end.
        exit_code: the controller's, likewise.
        reason: why the run was given up, likewise.
        size: bytes of the whole lines.
        cut: there is a part of a line behind these.
    """

    run: str | None = None
    listening: tuple[str, int] | None = None
    members: tuple[Entry, ...] = ()
    formed: bool = False
    world_size: int | None = None
    exits: Mapping[int, int] = {}
    lost: Mapping[str, str] = {}
    ended: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    size: int = 0
    cut: bool = False


def read(path: str | os.PathLike[str]) -> Past:
    """What a journal says, also while its controller runs.

    A last line without its end is left out: whoever wrote it crashed before acting upon it.

    Raises:
        ConfigError: it cannot be read, is no journal, or contradicts itself; names the line.
    """
    name = os.fspath(path)
    with open(open_plain(name, os.O_RDONLY), "rb") as file:
        return read_open(file, name)


def open_plain(path: str, flags: int) -> int:
    """Open a plain file.

    Raises:
        ConfigError: it cannot be opened, or is no plain file.
    """
    try:
        fd = open_at_once(path, flags)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ConfigError(f"{path}: it is no plain file; a journal is")
    return fd


def read_open(file: BinaryIO, path: str) -> Past:
    """The same of a file that is open at its beginning; `path` is its name, for people.

    Raises:
        ConfigError: as `read`.
    """
    reader = _Reader()
    number = size = 0
    try:
        while line := file.readline(LINE_BYTES + 1):
            number += 1
            if len(line) > LINE_BYTES:
                raise ValueError(f"it is longer than {LINE_BYTES} bytes")
            if number == 1 and not BEGINNING.startswith(line[: len(BEGINNING)]):
                raise ValueError("it does not begin as a journal does")
            if not line.endswith(b"\n"):
                break
            reader.take(_event(line))
            size += len(line)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: line {number}: {error}") from None
    return reader.past(size=size, cut=bool(line))


def _event(line: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise ValueError("it is no event")
    return event


class _Reader:
    """Follows the events of one run, and refuses what cannot have been."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._members: dict[str, Entry] = {}
        self._ranks: set[int] = set()
        self._exits: dict[int, int] = {}
        self._lost: dict[str, str] = {}
        self._takers: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "listening": self._listening,
            "joined": self._joined,
            "formed": self._formed,
            "rank_exited": self._rank_exited,
            "member_lost": self._member_lost,
            "finished": self._finished,
        }

    def past(self, *, size: int, cut: bool) -> Past:
        """What it comes to."""
        return Past(
            members=tuple(self._members.values()),
            exits=dict(self._exits),
            lost=dict(self._lost),
            size=size,
            cut=cut,
            **self._known,
        )

    def take(self, event: Mapping[str, Any]) -> None:
        """The next event.

        Raises:
            ValueError: a member is missing or of another type, or it cannot have come here.
        """
        if "run" not in self._known:
            self._run(event)
            return
        if "ended" in self._known:
            raise ValueError("the run had ended before")
        taker = self._takers.get(event["event"])
        # What is not known here changes nothing that is told from here.
        if taker is not None:
            taker(event)

    def _run(self, event: Mapping[str, Any]) -> None:
        version = _get(event, "version", int)
        if version != VERSION:
            raise ValueError(f"it is a journal of version {version}; this reads {VERSION}")
        self._known["run"] = _get(event, "run", str)

    def _listening(self, event: Mapping[str, Any]) -> None:
        self._known["listening"] = _get(event, "host", str), _get(event, "port", int)

    def _joined(self, event: Mapping[str, Any]) -> None:
        entry = Entry(
            host=_get(event, "host", str),
            ranks=_numbers(event, "ranks"),
            devices=_numbers(event, "devices"),
            wire=_get(event, "wire", int),
            peer=_get(event, "peer", str),
        )
        if "formed" in self._known:
            raise ValueError("a host joined a world that had formed")
        if entry.host in self._members:
            raise ValueError(f"host {entry.host!r} is in already")
        ranks = set(entry.ranks)
        if self._ranks & ranks or len(ranks) < len(entry.ranks):
            raise ValueError("a rank is given to two")
        self._members[entry.host] = entry
        self._ranks |= ranks

    def _formed(self, event: Mapping[str, Any]) -> None:
        size, hosts = _get(event, "world_size", int), _get(event, "hosts", list)
        if "formed" in self._known:
            raise ValueError("the world had formed before")
        names = [_get(host, "host", str) for host in hosts if isinstance(host, dict)]
        ranks = {name: self._members[name].ranks for name in names if name in self._members}
        if len(ranks) < len(hosts) or sum(map(len, ranks.values())) != size:
            raise ValueError("the world is not made of the hosts that joined")
        self._members = {name: self._members[name] for name in ranks}
        self._ranks = {rank for mine in ranks.values() for rank in mine}
        self._known |= {"formed": True, "world_size": size}

    def _rank_exited(self, event: Mapping[str, Any]) -> None:
        rank, code = _get(event, "rank", int), _get(event, "code", int)
        if "formed" not in self._known or rank not in self._ranks:
            raise ValueError(f"there is no rank {rank} in the world")
        self._exits[rank] = code

    def _member_lost(self, event: Mapping[str, Any]) -> None:
        host, cause = _get(event, "host", str), _get(event, "cause", str)
        if host not in self._members:
            raise ValueError(f"host {host!r} is not in")
        if "formed" in self._known:
            self._lost[host] = cause
        else:
            self._ranks -= set(self._members.pop(host).ranks)

    def _finished(self, event: Mapping[str, Any]) -> None:
        reason = event.get("reason")
        if event.get("exit_code") not in (0, 1, 3):
            raise ValueError("its exit_code is none of a controller's")
        self._known |= {
            "ended": _get(event, "outcome", str),
            "exit_code": _get(event, "exit_code", int),
            "reason": None if reason is None else _get(event, "reason", str),
        }


def _get(event: Mapping[str, Any], name: str, kind: type) -> Any:
    value = event.get(name)
    if type(value) is not kind:
        raise ValueError(f"its {name} is missing or of another type")
    return value


def _numbers(event: Mapping[str, Any], name: str) -> tuple[int, ...]:
    values = _get(event, name, list)
    if not values or any(type(value) is not int for value in values):
        raise ValueError(f"its {name} are not numbers")
    return tuple(values)


# -- telling --------------------------------------------------------------------------------


def summary(past: Past) -> list[str]:
    """What became of the run, in lines for people."""
    if past.run is None:
        return ["no run had begun: nobody was admitted"]
    where = "" if past.listening is None else f" on {format_address(*past.listening)}"
    lines = [f"run {past.run}{where}"]
    if past.formed:
        hosts = len(past.members)
        lines.append(f"a world of {past.world_size} rank(s) on {hosts} host(s) had formed")
        lines += [_host_line(member, past) for member in past.members]
    else:
        names = ", ".join(f"{m.host!r} ({m.peer})" for m in past.members) or "none"
        lines.append(f"no world had formed; hosts that were in: {names}")
    if past.ended is None:
        lines.append("it did not come to its end")
    else:
        why = "" if past.reason is None else f": {past.reason}"
        lines.append(f"it ended: {past.ended}{why}")
    return lines


def _host_line(member: Entry, past: Past) -> str:
    ranks = ", ".join(f"rank {rank} {_fate(past.exits.get(rank))}" for rank in member.ranks)
    cause = past.lost.get(member.host)
    lost = "" if cause is None else f"; the host was lost: {cause}"
    return f"host {member.host!r} ({member.peer}): {ranks}{lost}"


def _fate(code: int | None) -> str:
    if code is None:
        return "had not ended"
    return f"ended with {how_ended(code)}"
