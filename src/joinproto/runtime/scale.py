"""The one scale of all deadlines, from the environment."""

from __future__ import annotations

from collections.abc import Mapping

from joinproto.limits import SCALE_VARIABLE, parse_scale


def timeout_scale(environ: Mapping[str, str]) -> tuple[float, str | None]:
    """What `FLODL_NET_TIMEOUT_SCALE` says, and a warning to show once when it is unusable.

    Unset is 1.  A bad value is 1 too, as in published peers, with one line that says so.
    """
    text = environ.get(SCALE_VARIABLE)
    if text is None:
        return 1.0, None
    try:
        return parse_scale(text), None
    except ValueError as error:
        return 1.0, f"{SCALE_VARIABLE}: {error}; using 1"
