"""The secret that frames are tagged with.

A `Salt` is 16 bytes that never show: not in a repr, not in a log, not in a traceback's locals.
Equality takes the same time whatever the bytes are.
"""

from __future__ import annotations

from typing import Final, final

from nacl.bindings import sodium_memcmp

from joinproto.errors import ConfigError
from joinproto.limits import SALT_BYTES


@final
class Salt:
    """A session salt, or a pre-shared one: the key of every frame's tag.

    Raises:
        ConfigError: it is not 16 bytes long (fault `salt`).
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        if len(raw) != SALT_BYTES:
            raise ConfigError(
                f"a salt is {SALT_BYTES} bytes ({2 * SALT_BYTES} hex digits), not {len(raw)}",
                fault="salt",
            )
        self._raw = bytes(raw)

    @classmethod
    def from_hex(cls, text: str) -> Salt:
        """The salt written as 32 hex digits; white space around them is trimmed.

        Raises:
            ConfigError: it is anything else (fault `salt`); the text is not repeated in the error.
        """
        digits = text.strip()
        if not digits:
            raise ConfigError("the salt is empty; it is 32 hex digits", fault="salt")
        # bytes.fromhex also skips white space between digits, which published peers refuse.
        if not digits.isascii() or not digits.isalnum():
            raise ConfigError("the salt is not made of hex digits", fault="salt")
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raise ConfigError("the salt is not made of pairs of hex digits", fault="salt") from None
        return cls(raw)

    @property
    def raw(self) -> bytes:
        """The 16 bytes themselves."""
        return self._raw

    def hex(self) -> str:
        """The salt as it travels: 32 lower-case hex digits."""
        return self._raw.hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Salt) and sodium_memcmp(self._raw, other._raw)

    def __hash__(self) -> int:
        return hash(self._raw)

    def __repr__(self) -> str:
        return "Salt(hidden)"


OPEN: Final = Salt(bytes(SALT_BYTES))
"""The key of Hello, Accept and Reject under open admission."""
