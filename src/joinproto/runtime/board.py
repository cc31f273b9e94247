"""What a run looks like now, as plain data for pages, tables and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from joinproto.machines.window import Member, WindowContext, WindowState
from joinproto.runtime.signals import signal_name

if TYPE_CHECKING:
    from joinproto.runtime.server import Server


class Board:
    """Reads a server; nothing here changes it but `arm`.

    Args:
        server: whose run it shows.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.version = 0
        """Grows with everything that changes what is shown."""

    def changed(self) -> None:
        """Something changed."""
        self.version += 1

    def arm(self, peer: str) -> str | None:
        """Give the start from this address; returns why that cannot be, or None."""
        return self._server.arm(peer)

    @property
    def phase(self) -> str:
        """Where the run is, in the words of published controllers."""
        context, state = self._server.context, self._server.state
        if state in (WindowState.WAITING, WindowState.OVERTIME):
            return "staging" if context.startable else "waiting"
        if state in (WindowState.ENDING, WindowState.FAILED):
            return "failed"
        if state is WindowState.DONE:
            return "done"
        return "forming" if self._server.forming else "training"

    def published(self) -> dict[str, Any]:
        """What `/state.json` shows: the fields and types of flodl 0.8, of which 0.7's are a part.

        Raises:
            LookupError: the window is not open yet.
        """
        context = self._server.context
        return {**self._window(context), "members": [_published(m) for m in _shown(context)]}

    def detail(self) -> dict[str, Any]:
        """Everything there is to show.

        Raises:
            LookupError: the window is not open yet.
        """
        context = self._server.context
        ended = self._server.state in (WindowState.DONE, WindowState.FAILED)
        return {
            **self._window(context),
            "world_size": context.world_size if context.formed else None,
            "num_hosts": len(context.members),
            "reason": context.failure,
            "outcome": outcome(context, stopped=self._server.stopped) if ended else None,
            "turned_away": context.turned_away,
            "unadmitted": len(self._server.unadmitted),
            "exited_ranks": len(context.ends),
            "failed_ranks": context.failed_ranks,
            "members": [_detailed(context, member) for member in _shown(context)],
        }

    def _window(self, context: WindowContext) -> dict[str, Any]:
        config = context.config
        hosts = _shown(context)
        return {
            "phase": self.phase,
            "joined_ranks": sum(len(member.ranks) for member in hosts),
            "joined_hosts": len(hosts),
            "min_rank_start": config.min_ranks,
            "target_ranks": config.target_ranks,
            "window_remaining_secs": self._left(context, config.window),
            "cap_remaining_secs": self._left(context, config.cap),
            "start_mode": config.start_mode.value,
            "start_armed": context.armed,
        }

    def _left(self, context: WindowContext, limit: float) -> int | None:
        """Whole seconds until a deadline of the window; None when it has passed.

        Once the window has closed they stand still, as those of published controllers do.
        """
        if context.opened_at is None:
            raise LookupError("the window is not open yet")
        closed = context.closed_at
        now = context.since_opened(self._server.loop.now()) if closed is None else closed
        left = limit - now
        return int(left) if left >= 0 else None


EXIT_CODES = {"ok": 0, "failed": 1, "window-failed": 3}
"""A controller's, by the outcome of its run."""


def outcome(context: WindowContext, *, stopped: bool) -> str:
    """How a run that is over ended: `ok`, `failed` or `window-failed`.

    Args:
        context: what its window knows.
        stopped: it was given up because somebody asked for that.
    """
    if not context.formed and not stopped:
        return "window-failed"
    return "failed" if context.failure is not None or context.failed_ranks else "ok"


def _shown(context: WindowContext) -> tuple[Member, ...]:
    """Members of the world; before it has formed, those that are there."""
    return context.members if context.formed else context.present


def _published(member: Member) -> dict[str, Any]:
    return {
        "host": member.host,
        "ranks": list(member.ranks),
        "local_devices": list(member.hello.local_devices),
        "gpus": list(member.hello.gpus),
        "libtorch": member.hello.libtorch,
        "joined_at_secs": int(member.joined_at),
    }


def _detailed(context: WindowContext, member: Member) -> dict[str, Any]:
    loss = context.lost.get(member.host)
    return {
        "host": member.host,
        "peer": member.peer,
        "wire": member.wire,
        "libtorch": member.hello.libtorch,
        "gpus": list(member.hello.gpus),
        "joined_at_secs": round(member.joined_at, 3),
        "connected": member.connection is not None,
        "lost": None if loss is None else loss.cause,
        "left_at_secs": None if member.left_at is None else round(member.left_at, 3),
        "ranks": [
            _rank(context, rank, device, lost=loss is not None)
            for rank, device in zip(member.ranks, member.hello.local_devices, strict=True)
        ],
    }


def _rank(context: WindowContext, rank: int, device: int, *, lost: bool) -> dict[str, Any]:
    end = context.ends.get(rank)
    running = "lost" if lost else "running" if context.formed else "waiting"
    return {
        "rank": rank,
        "device": device,
        "state": running if end is None else "exited",
        "code": None if end is None else end.code,
        "signal": None if end is None else signal_name(end.code),
        "started_at_secs": None if context.formed_at is None else round(context.formed_at, 3),
        "ended_at_secs": None if end is None else round(end.at, 3),
    }
