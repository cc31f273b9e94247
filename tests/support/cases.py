"""The project's own vectors (specs/vectors, as its README describes them), read for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from joinproto.messages import MESSAGES, Message

FOLDER = Path(__file__).parents[2] / "specs" / "vectors"
SCHEMA = FOLDER / "vectors.schema.json"
GROUPS = ("dial", "frame", "tag", "payload", "stream", "agent-spec", "transcript")

Case = dict[str, Any]
Feed = Callable[[bytes], Iterable[bytes]]


@cache
def book(group: str) -> dict[str, Any]:
    """A whole file."""
    document: dict[str, Any] = json.loads((FOLDER / f"{group}.json").read_text())
    return document


def cases(group: str) -> list[Case]:
    """The cases of a file."""
    tests: list[Case] = book(group)["tests"]
    return tests


def data_of(written: str | list[Any]) -> bytes:
    """The bytes that stand as hex, or as pieces of it."""
    if isinstance(written, str):
        return bytes.fromhex(written)
    return b"".join(
        bytes.fromhex(part)
        if isinstance(part, str)
        else bytes.fromhex(part["repeat"]) * part["times"]
        for part in written
    )


def _text_of(written: str | list[Any]) -> str:
    if isinstance(written, str):
        return written
    return "".join(
        part if isinstance(part, str) else part["repeat"] * part["times"] for part in written
    )


def message_of(value: dict[str, Any]) -> Message:
    """The message that a case gives."""
    cls = next(cls for cls in MESSAGES if cls.__name__ == value["type"])
    return cls(**{name: _field(name, given) for name, given in value.items() if name != "type"})


def _field(name: str, given: Any) -> Any:
    if given is None or isinstance(given, int):
        return given
    if name.endswith("_sig"):
        return bytes.fromhex(given)
    if name == "gpus":
        return tuple(map(_text_of, given))
    if name in ("local_devices", "ranks", "nccl_version"):
        return tuple(given)
    return _text_of(given)


# -- feeding a reader ----------------------------------------------------------------------------


def whole(data: bytes) -> Iterable[bytes]:
    return [data]


def drip(data: bytes) -> Iterator[bytes]:
    """Byte by byte; what is longer than that is worth, in odd pieces from there on."""
    yield from (data[at : at + 1] for at in range(min(len(data), 1000)))
    yield from (data[at : at + 65_521] for at in range(1000, len(data), 65_521))


FEEDS: tuple[Feed, ...] = (whole, drip)
