"""What stands in front of a child's lines."""

from __future__ import annotations

import string
import time
from collections.abc import Callable

from joinproto.effects import Spawn
from joinproto.errors import ConfigError

FIELDS = ("host", "device", "rank", "local_rank", "stream", "time")

STANDARD = "[{host}:{device}:r{rank}] "
STANDARD_RELAY = "[{host}:relay] "


class Prefix:
    """A template for prefixes.

    Args:
        template: text with `{host}`, `{device}`, `{rank}`, `{local_rank}`, `{stream}` (out or err)
            and `{time}` (local, to the millisecond) in it; None: the published form.

    Raises:
        ConfigError: the template names something else, or is malformed.
    """

    def __init__(self, template: str | None = None) -> None:
        self._template = template
        if template is not None:
            self._check(template)

    @property
    def changes(self) -> bool:
        """Whether it is another one from one moment to the next."""
        return self._template is not None and "{time" in self._template

    def of(self, host: str, spawn: Spawn, stream: str) -> Callable[[], bytes]:
        """What gives the prefix for one stream of one child, at the time it is called."""
        is_relay = spawn.rank is None
        template = self._template
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
        fixed = template.format(**known, time="").encode(errors="surrogateescape")
        return lambda: fixed

    def _check(self, template: str) -> None:
        try:
            names = {name for _, name, _, _ in string.Formatter().parse(template)} - {None}
            strange = sorted(str(name) for name in names if name not in FIELDS)
            # A format behind a colon is checked by using it.
            template.format(**dict.fromkeys(FIELDS, ""))
        except (ValueError, IndexError, KeyError, AttributeError) as error:
            raise ConfigError(f"--prefix {template!r}: {error}") from None
        if strange or "\n" in template:
            known = ", ".join(f"{{{name}}}" for name in FIELDS)
            raise ConfigError(f"--prefix {template!r}: one line of text, with {known} in it")


STANDARD_PREFIX = Prefix()
"""The published form: `[HOST:DEVICE:rRANK] `, and `[HOST:relay] ` for the relay."""


def now() -> str:
    """Local time of day, to the millisecond."""
    at = time.time()
    return time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03d}"
