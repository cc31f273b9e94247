"""A run as tables on a terminal: live beside its controller, or once for `joinproto status`.

What is shown comes from the network.  It is put on the terminal as text, never as markup, and
without a control character in it.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import IO, Any, Final, Protocol, TypeGuard

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from joinproto.effects import Severity

MOST_ROWS: Final = 40
"""Of a table; what is left out is counted below it."""

FURNITURE: Final = 9
"""Lines of a terminal that are not rows: head, borders, what is counted, and some of what was
printed above."""

FEWEST_ROWS: Final = 3
MOST_SECONDS: Final = 1e12
"""What is beyond this is no time that a run can take."""

HOST_COLUMNS: Final = (
    "host",
    "ranks",
    "devices",
    "GPUs",
    "libtorch",
    "wire",
    "peer",
    "joined after",
)
RANK_COLUMNS: Final = ("rank", "host", "device", "state", "ended with", "after")
OPEN_PHASES: Final = ("waiting", "staging")
STYLES: Final = {
    Severity.DEBUG: "dim",
    Severity.INFO: "",
    Severity.WARNING: "yellow",
    Severity.ERROR: "red",
}
_ESCAPED: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of Unicode that move the cursor, turn the line about, or cannot be written."""


class Board(Protocol):
    """What a run looks like now; see `joinproto.runtime.board`."""

    def detail(self) -> dict[str, Any]:
        """Everything there is to show; LookupError: nothing yet."""


def clean(text: object) -> str:
    """`text` as it may go to a terminal: control characters and the like are spelt out."""
    shown = str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _ESCAPED else char
        for char in shown
    )


# -- one picture ------------------------------------------------------------------------------


def render(detail: Mapping[str, Any], *, rows: int = MOST_ROWS) -> RenderableType:
    """A run as it is: how far it is, then its hosts, or its ranks once these run.

    Args:
        detail: what `Board.detail` or `Board.published` gives; a field that is missing or of
            another type is left out, since it may come from any controller.
        rows: the most that a table has; more rows than that have what failed first.
    """
    members = [member for member in _list(detail.get("members")) if isinstance(member, dict)]
    parts: list[RenderableType] = [_head(detail)]
    reason = detail.get("reason")
    if reason is not None:
        parts.append(Text(f"given up: {clean(reason)}", style="red"))
    if any(rank.get("state", "waiting") != "waiting" for _, rank in _ranks(members)):
        parts += _rank_table(members, rows)
    elif members:
        parts += _host_table(members, rows)
    return Group(*parts)


def _head(detail: Mapping[str, Any]) -> Text:
    phase = clean(detail.get("phase", "unknown"))
    style = {"failed": "bold red", "done": "bold green"}.get(phase, "bold")
    outcome = detail.get("outcome")
    ended = "" if outcome is None else f" ({clean(outcome)})"
    return Text(phase, style=style).append(f"{ended}: {_numbers(detail, phase)}", style="not bold")


def _numbers(detail: Mapping[str, Any], phase: str) -> str:
    """The counts of a run, in words."""
    get = detail.get
    target = "" if get("target_ranks") is None else f", target {clean(get('target_ranks'))}"
    said = [
        f"{clean(get('joined_ranks', '?'))} rank(s) on {clean(get('joined_hosts', '?'))} host(s)"
    ]
    if phase in OPEN_PHASES:
        said[0] += f" of at least {clean(get('min_rank_start', '?'))}{target}"
        said += _countdown(get("window_remaining_secs"), "window")
        said += _countdown(get("cap_remaining_secs"), "cap")
        if get("start_mode") not in (None, "auto"):
            armed = "given" if get("start_armed") else "not given yet"
            said.append(f"start {clean(get('start_mode'))}, {armed}")
    for name, what in (
        ("exited_ranks", "exited"),
        ("failed_ranks", "failed"),
        ("turned_away", "dial(s) turned away"),
    ):
        if count := _count(get(name)):
            said.append(f"{count} {what}")
    return "; ".join(said)


def _count(value: object) -> int:
    """A count that is given as a number, or as a list of what is counted."""
    if isinstance(value, list | tuple):
        return len(value)
    return value if type(value) is int else 0


def _countdown(seconds: object, what: str) -> list[str]:
    return [f"{what} {seconds:.0f} s"] if _is_time(seconds) else []


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


# -- hosts ------------------------------------------------------------------------------------


def _host_table(members: Sequence[Mapping[str, Any]], rows: int) -> list[RenderableType]:
    shown = _first(members, rows, lambda member: member.get("lost") is None)
    table = _table(HOST_COLUMNS, [_host_row(member) for member in shown])
    left = len(members) - len(shown)
    return [table, Text(f"… and {left} more", style="dim")] if left else [table]


def _host_row(member: Mapping[str, Any]) -> list[str]:
    ranks = [rank for _, rank in _ranks([member])]
    return [
        _cell(member.get("host")),
        _cell(_span(rank.get("rank") for rank in ranks)),
        _cell(_span(rank.get("device") for rank in ranks)),
        _cell(_labels(member.get("gpus"))),
        _cell(member.get("libtorch")),
        _cell(member.get("wire")),
        _cell(member.get("peer")),
        _cell(_seconds(member.get("joined_at_secs"))),
    ]


def _ranks(
    members: Iterable[Mapping[str, Any]],
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Every rank with its host; published controllers give no more than its number."""
    found: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
    for member in members:
        devices = _list(member.get("local_devices"))
        for place, rank in enumerate(_list(member.get("ranks"))):
            if not isinstance(rank, dict):
                rank = {"rank": rank, "device": devices[place] if place < len(devices) else None}
            found.append((member, rank))
    return found


def _span(numbers: Iterable[object]) -> str:
    """Numbers, those in a row as their first and last: 0–3, 6."""
    spans: list[list[object]] = []
    for number in numbers:
        last = spans[-1][-1] if spans else None
        if type(number) is int and type(last) is int and number == last + 1:
            spans[-1] = [spans[-1][0], number]
        elif number is not None:
            spans.append([number])
    return ", ".join("–".join(map(str, span)) for span in spans)


def _labels(gpus: object) -> str:
    """Labels, equal ones once."""
    counts = Counter(map(str, _list(gpus)))
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())


# -- ranks ------------------------------------------------------------------------------------


def _rank_table(members: Sequence[Mapping[str, Any]], rows: int) -> list[RenderableType]:
    ranks = _ranks(members)
    shown = _first(ranks, rows, lambda pair: not _is_bad(pair[1]))
    table = _table(
        RANK_COLUMNS,
        [_rank_row(member, rank) for member, rank in shown],
        ["red" if _is_bad(rank) else "" for _, rank in shown],
    )
    return [table, *_left_out(ranks, shown)]


def _rank_row(member: Mapping[str, Any], rank: Mapping[str, Any]) -> list[str]:
    lost = rank.get("state") == "lost"
    return [
        _cell(rank.get("rank")),
        _cell(member.get("host")),
        _cell(rank.get("device")),
        _cell(rank.get("state")),
        _cell(member.get("lost") if lost else _end(rank)),
        _cell(_duration(rank)),
    ]


def _left_out(
    ranks: Sequence[tuple[Any, Mapping[str, Any]]], shown: Sequence[tuple[Any, Mapping[str, Any]]]
) -> list[RenderableType]:
    states = Counter(clean(rank.get("state")) for _, rank in ranks)
    states.subtract(Counter(clean(rank.get("state")) for _, rank in shown))
    counts = ", ".join(f"{count} more {state}" for state, count in states.items() if count)
    return [Text(f"… and {counts}", style="dim")] if counts else []


def _is_bad(rank: Mapping[str, Any]) -> bool:
    return rank.get("state") == "lost" or bool(rank.get("code"))


def _end(rank: Mapping[str, Any]) -> object:
    if rank.get("signal") is not None:
        return rank["signal"]
    return None if rank.get("code") is None else f"code {rank['code']}"


def _duration(rank: Mapping[str, Any]) -> str | None:
    start, end = rank.get("started_at_secs"), rank.get("ended_at_secs")
    return _seconds(end - start) if _is_time(start) and _is_time(end) else None


# -- tables -----------------------------------------------------------------------------------


def _first(rows: Sequence[Any], most: int, good: Any) -> Sequence[Any]:
    """As many as there is room for; where that is not all, those that are not good come first."""
    return rows if len(rows) <= most else sorted(rows, key=good)[:most]


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()
) -> Table:
    """A table of text, without columns in which nothing stands."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    used = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    for place in used:
        # What is too long goes on in the next line: nothing may hide behind an ellipsis.
        table.add_column(columns[place], overflow="fold")
    for row, style in zip_longest(rows, styles):
        table.add_row(*(Text(row[place]) for place in used), style=style or None)
    return table


def _cell(value: object) -> str:
    return "" if value is None else clean(value)


def _seconds(value: object) -> str | None:
    return f"{value:.1f} s" if _is_time(value) else None


def _is_time(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and abs(value) <= MOST_SECONDS


# -- a table that lives -----------------------------------------------------------------------


class Screen(Console):
    """A console for text from the network, whose reader may go away.

    Args:
        file: where it writes; None: stderr.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        super().__init__(file=file, stderr=file is None, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Leave it to the command to end as all do, instead of ending the process here."""
        self.quiet = True
        raise BrokenPipeError


class LiveTable:
    """The run on a terminal, drawn anew in the same place; lines are printed above it.

    Nothing runs by itself: it is drawn when `refresh` is called.  A terminal that goes away is not
    written to any more, and does no harm.

    Args:
        board: the run.
        file: the terminal; None: stderr.
    """

    def __init__(self, board: Board, file: IO[str] | None = None) -> None:
        self._board = board
        self._console = Screen(file)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._closed = False
        with self._tolerant():
            self._live.start()

    def on_text(self, severity: Severity, text: str) -> None:
        """Print a line for people above the table."""
        if severity > Severity.DEBUG:
            with self._tolerant():
                line = Text(clean(text), style=STYLES[severity])
                self._console.print(line, soft_wrap=True)

    def refresh(self) -> None:
        """Draw the run as it is now."""
        if not self._closed:
            with self._tolerant():
                self._live.update(self._picture(), refresh=True)

    def close(self) -> None:
        """Draw it a last time, and give the terminal back as it was; may be called again."""
        if not self._closed:
            self.refresh()
            self._closed = True
            with self._tolerant():
                self._live.stop()

    @contextmanager
    def _tolerant(self) -> Iterator[None]:
        """What cannot be written any more is left out."""
        try:
            yield
        except OSError:
            self._console.quiet = True

    def _picture(self) -> RenderableType:
        try:
            detail = self._board.detail()
        except LookupError:
            return Text("")
        room = max(FEWEST_ROWS, self._console.height - FURNITURE)
        return render(detail, rows=min(MOST_ROWS, room))
