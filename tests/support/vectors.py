"""The frame vectors: bytes, and what a published program made of them, one file a wire version."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from joinproto.errors import Stage
from joinproto.grammar import WIRES
from joinproto.keys import Salt
from joinproto.messages import MESSAGES, Message

FOLDER = Path(__file__).parents[2] / "specs" / "vectors" / "published"

LENIENT = "lenient-decoder"
"""The flag of frames that are read and never written."""


@dataclass(frozen=True, kw_only=True)
class Vector:
    """One frame, or what stands for one.

    Attributes:
        wire: the version that the program speaks.
        key: what the frame is tagged with.
        data: the bytes of the stream.
        verdict: valid, invalid, other-kind or end-of-stream.
        stage: of an invalid one, where it is refused.
        message: of a valid one.
        size: bytes of `data` that the frame takes.
        flags: what else is known about it.
    """

    name: str
    wire: int
    key: Salt
    data: bytes
    verdict: str
    stage: Stage | None
    message: Message | None
    size: int
    flags: frozenset[str]

    def __str__(self) -> str:
        return self.name


def _message(body: dict[str, Any]) -> Message:
    """The message in a vector; its type, its fields by name, bytes as hex."""
    cls = next(cls for cls in MESSAGES if cls.__name__ == body["type"])
    values = {name: _value(name, value) for name, value in body.items() if name != "type"}
    assert values.keys() <= {field.name for field in fields(cls)}
    return cls(**values)


def _value(name: str, value: Any) -> Any:
    if name.endswith("_sig") and value is not None:
        return bytes.fromhex(value)
    return tuple(value) if isinstance(value, list) else value


def _vector(book: dict[str, Any], test: dict[str, Any]) -> Vector:
    data = bytes.fromhex(test["frame"])
    return Vector(
        name=f"wire {book['wireVersion']}: {test['comment']}",
        wire=book["wireVersion"],
        key=Salt.from_hex(book["salt"]),
        data=data,
        verdict=test["result"],
        stage=Stage(test["stage"]) if "stage" in test else None,
        message=_message(test["message"]) if "message" in test else None,
        size=test.get("consumed", len(data)),
        flags=frozenset(test.get("flags", ())),
    )


def load() -> list[Vector]:
    """All vectors of all files."""
    found = []
    for path in sorted(FOLDER.glob("frames-v*.json")):
        book = json.loads(path.read_text())
        assert len(book["tests"]) == book["numberOfTests"], path
        found += [_vector(book, test) for test in book["tests"]]
    return found


VECTORS = load()

assert {vector.wire for vector in VECTORS} == WIRES.keys(), "a wire version without vectors"
