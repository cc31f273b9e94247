"""Wireshark without a window, run with specs/joinproto.lua on a capture that is made here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from joinproto.conformance.pcap import MAX_MSS, Conversation, write_pcap
from joinproto.messages import MESSAGES, Message

TSHARK = shutil.which("tshark")
SCRIPT = Path(__file__).parents[2] / "specs" / "joinproto.lua"

WANTED = os.environ.get("JOINPROTO_REQUIRE_TSHARK") == "1"

needs_tshark = pytest.mark.skipif(
    TSHARK is None and not WANTED,
    reason="no tshark in PATH (Debian: apt-get install tshark); "
    "JOINPROTO_REQUIRE_TSHARK=1 makes that a failure",
)

# Wireshark knows other protocols by port, and asks about those first unless told otherwise.
FLAGS = ("-o", "tcp.try_heuristic_first:TRUE")

SINGULAR = {"local_devices": "local_device", "gpus": "gpu", "ranks": "rank"}
"""Fields that hold many, by the name of one."""


@dataclass(frozen=True)
class Item:
    """A field as Wireshark shows it: its name, what it says, and the bytes it stands on."""

    name: str
    show: str
    value: bytes


@dataclass(frozen=True)
class Shown:
    """One of our parts of a packet: a channel magic, a frame, a complaint of the stream's end."""

    title: str
    items: tuple[Item, ...]
    complaints: tuple[str, ...]

    def all(self, name: str) -> list[Item]:
        return [item for item in self.items if item.name == f"joinproto.{name}"]

    def number(self, name: str) -> int:
        """The one number of that name."""
        [item] = self.all(name)
        return int(item.show, 0)

    @property
    def is_frame(self) -> bool:
        return bool(self.all("magic"))

    @property
    def message(self) -> Message | None:
        """The message, if it could be read to its end."""
        if not self.all("message") or "bad_payload" in self.complaints:
            return None
        cls = MESSAGES[self.number("message")]
        values = {field.name: self._value(cls.__name__, field.name) for field in fields(cls)}
        return cls(**values)

    def _value(self, message: str, name: str) -> Any:
        prefix = "".join(f"_{char.lower()}" if char.isupper() else char for char in message)[1:]
        found = self.all(f"{prefix}.{SINGULAR.get(name, name)}")
        values = tuple(_value(name, item) for item in found)
        if name in SINGULAR:
            return values
        assert len(values) <= 1
        return values[0] if values else None


def _value(name: str, item: Item) -> Any:
    if name in ("local_devices", "ranks", "rank", "code", "formation_wait_secs"):
        return int(item.show)
    if name == "nccl_version":
        return tuple(map(int, item.show.split(".")))
    if name.endswith("_sig"):
        return item.value
    # What is shown of an empty string stands on the byte that says so; of others, special
    # characters are shown in another way.
    return item.value.decode() if item.show else ""


def _shown(proto: ElementTree.Element) -> Shown:
    items, complaints = [], []
    for field in proto.iter("field"):
        name = field.get("name", "")
        if name == "_ws.expert":
            complaints.append(field[0].get("name", ""))
        elif name.startswith("joinproto."):
            value = bytes.fromhex(field.get("value", ""))
            items.append(Item(name, field.get("show", ""), value))
    ours = (name for name in complaints if name.startswith("joinproto."))
    return Shown(
        title=proto.get("showname", ""),
        items=tuple(item for item in items if item.name not in complaints),
        complaints=tuple(name.removeprefix("joinproto.") for name in ours),
    )


def run(
    folder: Path,
    conversations: Iterable[Conversation],
    *arguments: str,
    mss: int = MAX_MSS,
    script: Path = SCRIPT,
) -> str:
    """What tshark writes about the conversations; an error in the script is one here."""
    assert TSHARK is not None, "no tshark in PATH (Debian: apt-get install tshark)"
    capture = folder / "capture.pcap"
    write_pcap(capture, conversations, mss=mss)
    done = subprocess.run(
        [TSHARK, "-X", f"lua_script:{script}", *FLAGS, "-r", capture, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    assert "lua" not in done.stderr.lower(), done.stderr
    assert "_ws.lua.error" not in done.stdout
    return done.stdout


def dissected(
    folder: Path, conversations: Sequence[Conversation], *arguments: str, **how: Any
) -> list[list[Shown]]:
    """What is shown of each conversation, in order.

    With "-2" among the arguments there are two passes, the first as blind as that of a window.
    """
    ours = () if "-2" in arguments else ("-Y", "joinproto")
    output = ("-T", "pdml", "-J", "tcp joinproto")
    text = run(folder, conversations, *output, *ours, *arguments, **how)
    streams: dict[int, list[Shown]] = defaultdict(list)
    for packet in ElementTree.fromstring(text):
        number = packet.find("proto[@name='tcp']/field[@name='tcp.stream']")
        assert number is not None
        streams[int(number.get("show", ""))] += map(
            _shown, packet.findall("proto[@name='joinproto']")
        )
    return [streams[number] for number in range(len(conversations))]
