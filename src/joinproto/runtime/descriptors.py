"""The limit on open descriptors, for whoever has many of them: the controller, and the helper."""

from __future__ import annotations

import resource


def lift_limit() -> tuple[int, int] | None:
    """Let this process have as many descriptors open as the system lets it.

    Returns:
        The soft and the hard limit that were; None: they still are.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        # Not even what is in force may be set anew, with a hard limit above the system's.
        return None
    return soft, hard
