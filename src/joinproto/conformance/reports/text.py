"""Text of a target as it may stand in a report.

A target may write any bytes.  What would steer a terminal, turn a line about, look like nothing or
be no character of XML is spelt out with a backslash, as Python does; the markup of a format is its
own report's to escape.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_SPELT_OUT = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
"""Categories of Unicode that are spelt out: controls, invisible ones, surrogates, private ones, and
line ends that only some programs know."""

BYTES_A_LINE = 16


def visible(text: str, *, keep: str = "\n\t") -> str:
    """`text` with nothing in it that cannot be seen, but for the characters to keep."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in keep or not _is_spelt_out(char) else _spelt_out(char) for char in text
    )


def _is_spelt_out(char: str) -> bool:
    code = ord(char)
    nothing = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF  # noncharacters
    return nothing or unicodedata.category(char) in _SPELT_OUT


def _spelt_out(char: str) -> str:
    return char.encode("unicode_escape").decode()


def one_line(text: str, most: int = 0) -> str:
    """`text` on one line, with nothing in it that cannot be seen.

    Args:
        text: any.
        most: characters that are kept, and then an ellipsis; 0: all.
    """
    shown = visible(text.strip("\n"), keep="")
    return shown if not most or len(shown) <= most else f"{shown[: most - 1]}…"


def hexdump(data: bytes) -> str:
    """Offset, hex and ASCII, sixteen bytes a line."""
    return "\n".join(_hex_lines(data))


def _hex_lines(data: bytes) -> Iterator[str]:
    for offset in range(0, len(data), BYTES_A_LINE):
        line = data[offset : offset + BYTES_A_LINE]
        halves = "  ".join(part.hex(" ") for part in (line[:8], line[8:]) if part)
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in line)
        yield f"{offset:04x}  {halves:<48}  {shown}"
