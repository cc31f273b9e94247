"""The parser that Kaitai Struct's compiler made of specs/joinproto.ksy, and what it says."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import fields
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from kaitaistruct import KaitaiStream, KaitaiStructError

from joinproto.messages import MESSAGES, Message

SPECS = Path(__file__).parents[2] / "specs"
GRAMMAR = SPECS / "joinproto.ksy"
FOLDER = SPECS / "kaitai"
PARSER = FOLDER / "joinproto.py"

NODE = shutil.which("node")

needs_compiler = pytest.mark.skipif(
    NODE is None or not (FOLDER / "node_modules").is_dir(),
    reason="no Kaitai Struct compiler in specs/kaitai (make kaitai; it takes node and npm)",
)

REFUSED = (KaitaiStructError, EOFError, UnicodeDecodeError)
"""What a generated parser raises for bytes that are not of its grammar."""


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("kaitai_joinproto", PARSER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Joinproto


JOINPROTO = _load()


def compiled(language: str) -> str:
    """The parser that the compiler makes of the grammar now."""
    assert NODE is not None
    made = subprocess.run(
        [NODE, FOLDER / "compile.cjs", language, GRAMMAR],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


def parsed(data: bytes, *, is_dialer: bool = False) -> Any:
    """A stream of one direction.

    Raises:
        REFUSED: as generated parsers do.
    """
    return JOINPROTO(is_dialer, KaitaiStream(BytesIO(data)))


def frames_of(stream: Any) -> list[Any]:
    """The frames of a stream; a field that the bytes do not have, the parser has not either."""
    return list(getattr(stream, "frames", []))


def message_of(frame: Any) -> Message | None:
    """The message of a frame; None for a frame of another kind, which is left unread."""
    if frame.header.kind != JOINPROTO.FrameKind.join:
        assert isinstance(frame.payload, bytes)
        return None
    body = frame.payload.message
    name = frame.payload.message_type.name.title().replace("_", "")
    assert type(body).__name__ == name
    cls = next(cls for cls in MESSAGES if cls.__name__ == name)
    named = (field.name for field in fields(cls))
    return cls(**{each: _plain(getattr(body, each)) for each in named if hasattr(body, each)})


def _plain(value: Any) -> Any:
    """What a field says."""
    match type(value).__name__:
        case "Strings" | "Numbers" | "Octets":
            return tuple(map(_plain, value.entries))
        case "OptionString" | "OptionVersion" | "OptionSignature":
            return _plain(value.value) if value.is_there else None
        case "ThreeNumbers":
            return (value.major.value, value.minor.value, value.patch.value)
        case "String" | "VarintU32" | "VarintU64" | "ZigzagI32":
            return value.value
        case _:
            return value
