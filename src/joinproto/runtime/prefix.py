"""What stands in front of a child's lines."""

from __future__ import annotations

import re
import string
import time
from collections.abc import Callable
from typing import Final

from joinproto.effects import Spawn
from joinproto.errors import ConfigError

FIELDS: Final = ("host", "device", "rank", "local_rank", "stream", "time")

STANDARD: Final = "[{host}:{device}:r{rank}] "
STANDARD_RELAY: Final = "[{host}:relay] "

_WIDTH: Final = re.compile(r"(?:.?[<>^])?\d{0,2}")
"""What may stand behind a field's colon.  The relay has no numbers, so what suits only numbers, or
only text, does not."""


class Prefix:
    """A template for prefixes.

    Args:
        template: text with `{host}`, `{device}`, `{rank}`, `{local_rank}`, `{stream}` (out or err)
            and `{time}` (local, to the millisecond) in it, each with an alignment and a width of
            two digits at most if need be (`{rank:>3}`); None: the published form.

    Raises:
        ConfigError: the template names something else, is malformed or has a line break in it.
    """

    def __init__(self, template: str | None = None) -> None:
        self.template = template
        self.changes = template is not None and "time" in _fields_of(template)
        """Whether it is another one from one moment to the next."""

    def of(self, host: str, spawn: Spawn, stream: str) -> Callable[[], bytes]:
        """What gives the prefix for one stream of one child, at the time it is called."""
        is_relay = spawn.rank is None
        template = self.template
        if template is None:
            template = STANDARD_RELAY if is_relay else STANDARD
        known = {
            "host": host,
            "device": "-" if is_relay else spawn.device,
            "rank": "relay" if is_relay else spawn.rank,
            "local_rank": "-" if is_relay else spawn.local_rank,
            "stream": stream,
        }
        if self.changes:
            return lambda: template.format(**known, time=now()).encode(errors="surrogateescape")
        fixed = template.format(**known).encode(errors="surrogateescape")
        return lambda: fixed


def _fields_of(template: str) -> set[str]:
    """The fields that a template names.

    Raises:
        ConfigError: see `Prefix`.
    """
    found = set()
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(f"--prefix {template!r}: {error}") from None
    for _, name, width, conversion in parts:
        if name is None:
            continue
        if name not in FIELDS or conversion or not _WIDTH.fullmatch(width or ""):
            known = ", ".join(f"{{{field}}}" for field in FIELDS)
            raise ConfigError(f"--prefix {template!r}: it may hold {known}, and {{rank:>3}}")
        found.add(name)
    if "\n" in template:
        raise ConfigError(f"--prefix {template!r}: it may not hold a line break")
    return found


STANDARD_PREFIX = Prefix()
"""The published form: `[HOST:DEVICE:rRANK] `, and `[HOST:relay] ` for the relay."""


def now() -> str:
    """Local time of day, to the millisecond."""
    at = time.time()
    return time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03d}"
