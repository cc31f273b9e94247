"""Every number of the protocol and of this implementation, each with its reason.

Where no other source is named, a number is that of the published crates (flodl 0.6.0 to 0.8.0) and
the other side relies on it.  Durations are seconds and stand unscaled; the
functions at the end apply the one scale that stretches or shrinks them all.
"""

from __future__ import annotations

import math
from enum import StrEnum

# -- frames -----------------------------------------------------------------------------------

HEADER_BYTES = 24
TAG_BYTES = 8
SALT_BYTES = 16
SIGNATURE_BYTES = 32

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
"""Exactly this much is legal.  Checked on the header, before the payload is waited for."""

MAX_ITEMS = 65_536
"""Ours: the most entries of one sequence.  An entry of one byte on the wire becomes an object of
fifty in memory, so without it 16 MiB of payload would cost a reader a gigabyte and a minute.  No
published message comes near: a host has at most `MAX_DEVICES` ranks."""

MAX_DEVICES = 256
"""The most ranks one host may offer, and as many as there are device numbers."""

MAX_HOST_CHARACTERS = 4096
"""Ours: the longest host name that is admitted.  It stands in envelopes, where hex and JSON make
each of its characters twelve bytes or more, in answers and in logs; unbounded, one Hello could make
a world whose messages are too long to send."""

# -- the agent's clock ------------------------------------------------------------------------

CONNECT_PAUSE = 0.5
"""Between two attempts that could not connect.  Does not scale."""

CONNECT_BUDGET = 30.0
"""Published agents dial 60 times, 0.5 s apart.  Ours: that as wall-clock time, so that an address
that never answers cannot turn half a minute into hours."""

CONNECT_ATTEMPT = 3.0
CONNECT_ATTEMPT_FLOOR = 1.0
"""Ours: one attempt's share of the budget, name resolution included, scaled but never below."""

HANGUP_PAUSE = 0.5
"""Ours: the pause after a first connection that ended before any answer; it doubles from one to the
next.  Published windows count every dial against their limit, so an agent must not hammer."""

WRITE_STALL = 30.0
JOIN_REPLY = 30.0
FORMATION_MARGIN = 30.0
"""Added to the formation wait that Accept announces, which the controller has scaled already."""

KEEPALIVE = 30.0
"""Ours: how long a silent peer host may stay unnoticed (TCP keepalive and TCP_USER_TIMEOUT)."""

RESTART_FIRST, RESTART_LAST = 5.0, 60.0
REJECT_FIRST, REJECT_LAST = 30.0, 300.0
RESTART_RESET = 120.0
"""Ours: pauses of an agent that dials again, doubling from first to last; a stint of
`RESTART_RESET` seconds starts over."""

GPU_PROBE = 30.0
"""Ours: how long NVML and nvidia-smi together may take.  A driver that has to wake eight GPUs takes
many seconds and is not broken."""

# -- the controller's clock -------------------------------------------------------------------

ROUTE = 5.0
HELLO = 10.0
"""After the magic, for the whole Hello."""

JOIN_TIMEOUT = 300.0
MAX_JOIN_TIMEOUT = 600.0
"""When unset: this, or the join timeout where that is longer."""

LINGER = 2.0
"""Ours: how long a turned-away connection is drained so that its Reject is not lost to a reset."""

ABORT_WAIT = 30.0
"""Ours: how long a controller that has said Abort waits for a host's last reports."""

# -- children ---------------------------------------------------------------------------------

GRACE = 5.0
"""Ours: between SIGTERM and SIGKILL, one for all children of a host; `--grace` sets it."""

KILL_WAIT = 10.0
"""Ours: how long after SIGKILL a child may still be there before it is given up and named."""

DRAIN = 2.0
"""Ours: how long the report of an exit waits for output that was written before it."""

LINE_PIECE_BYTES = 1024 * 1024
"""Ours: a longer line goes out in pieces of this size, each behind the prefix."""

CARRIAGE_RETURN_AGE = 1.0
"""Ours: a partial line that holds a carriage return (a progress bar) goes out when this old."""

# -- the scale --------------------------------------------------------------------------------

SCALE_VARIABLE = "FLODL_NET_TIMEOUT_SCALE"
MIN_SCALE = 0.1
MAX_SCALE = 1000.0
"""Ours: published peers take any finite scale; beyond this a deadline is none."""


def parse_scale(text: str) -> float:
    """The deadline scale written in `text` (white space around it is trimmed).

    Raises:
        ValueError: it is no plain decimal number, or not within MIN_SCALE to MAX_SCALE.
    """
    trimmed = text.strip()
    # float() also takes "1_0" and digits of other scripts, which no other peer reads.
    if not trimmed.isascii() or "_" in trimmed:
        raise ValueError(f"{text!r} is not a number")
    try:
        scale = float(trimmed)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not (math.isfinite(scale) and MIN_SCALE <= scale <= MAX_SCALE):
        raise ValueError(f"{text!r} is not between {MIN_SCALE:g} and {MAX_SCALE:g}")
    return scale


def whole_seconds(base: float, scale: float) -> float:
    """A whole-second deadline: base × scale rounded up, at least 1 s."""
    return float(max(1, math.ceil(base * scale)))


def connect_attempt(scale: float) -> float:
    """Seconds that one dial may take, name resolution included."""
    return max(CONNECT_ATTEMPT_FLOOR, CONNECT_ATTEMPT * scale)


class Timer(StrEnum):
    """The deadlines that machines set, by the name under which they expire."""

    REDIAL = "redial"
    WRITE = "write"
    REPLY = "reply"
    FORMATION = "formation"
    GRACE = "grace"
    KILL = "kill"
    DRAIN = "drain"
    ROUTE = "route"
    HELLO = "hello"
    LINGER = "linger"
    ABORT = "abort"
    WINDOW = "window"
    CAP = "cap"
