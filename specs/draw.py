"""Keeps what specs/protocol.md shows of the code current, and the clauses that the package carries.

    .venv/bin/python specs/draw.py            writes both
    .venv/bin/python specs/draw.py --check    says what is not current, and exits with 1

In the text a drawn part stands between `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from joinproto import limits
from joinproto.cli.machines import MACHINES
from joinproto.conformance.clauses import dump, parse
from joinproto.grammar import (
    WIRES,
    Exactly,
    Octets,
    Option,
    Sequence,
    Signed,
    Text,
    Tuple,
    Varint,
)
from joinproto.messages import MESSAGES
from joinproto.table import Rule, Table

ROOT: Final = Path(__file__).parents[1]
TEXT: Final = ROOT / "specs" / "protocol.md"
CLAUSES: Final = ROOT / "src" / "joinproto" / "conformance" / "data" / "clauses.json"

_DRAWN: Final = re.compile(
    r"(<!-- table: (?P<name>[a-z0-9 ]+) -->\n).*?(?=<!-- end -->)", re.DOTALL
)

LIMITS: Final = {
    "HEADER_BYTES": ("header of a frame", "bytes"),
    "TAG_BYTES": ("tag", "bytes"),
    "SALT_BYTES": ("salt, and key of the HMAC", "bytes"),
    "SIGNATURE_BYTES": ("dataset and model signature", "bytes"),
    "MAX_PAYLOAD_BYTES": ("payload of a frame, at most", "bytes"),
    "MAX_ITEMS": ("entries of a sequence, at most", ""),
    "MAX_DEVICES": ("devices of a host, at most", ""),
    "MAX_HOST_CHARACTERS": ("host name, at most", "characters"),
    "CONNECT_PAUSE": ("pause between dials", "s"),
    "CONNECT_BUDGET": ("all dials", "s"),
    "CONNECT_ATTEMPT": ("one dial, at most", "s"),
    "CONNECT_ATTEMPT_FLOOR": ("one dial, at least", "s"),
    "HANGUP_PAUSE": ("pause after a connection that gave no answer", "s"),
    "WRITE_STALL": ("what is sent is taken within", "s"),
    "JOIN_REPLY": ("answer to Hello within", "s"),
    "FORMATION_MARGIN": ("margin of the wait for WorldFormed", "s"),
    "KEEPALIVE": ("a silent peer is dead after", "s"),
    "RESTART_FIRST": ("first pause after a run", "s"),
    "RESTART_LAST": ("longest pause after a run", "s"),
    "REJECT_FIRST": ("first pause after a Reject", "s"),
    "REJECT_LAST": ("longest pause after a Reject", "s"),
    "RESTART_RESET": ("pauses start over after a stint of", "s"),
    "GPU_PROBE": ("looking for GPUs, at most", "s"),
    "ROUTE": ("channel magic within", "s"),
    "HELLO": ("Hello within", "s"),
    "JOIN_TIMEOUT": ("join timeout", "s"),
    "MAX_JOIN_TIMEOUT": ("cap of the window", "s"),
    "LINGER": ("a rejected dial is drained for", "s"),
    "ABORT_WAIT": ("last reports after Abort within", "s"),
    "GRACE": ("from SIGTERM to SIGKILL", "s"),
    "KILL_WAIT": ("a child is given up after SIGKILL and", "s"),
    "DRAIN": ("the report of an exit waits for output, at most", "s"),
    "LINE_PIECE_BYTES": ("line in one piece, at most", "bytes"),
    "CARRIAGE_RETURN_AGE": ("a progress bar is forwarded after", "s"),
    "MIN_SCALE": ("scale, at least", ""),
    "MAX_SCALE": ("scale, at most", ""),
}
"""Constant → what it is and its unit; a number that has no words here is an error."""

SAME_REASON: Final = {
    "CONNECT_ATTEMPT": "CONNECT_ATTEMPT_FLOOR",
    "RESTART_FIRST": "RESTART_RESET",
    "RESTART_LAST": "RESTART_RESET",
    "REJECT_FIRST": "RESTART_RESET",
    "REJECT_LAST": "RESTART_RESET",
}
"""Constant → the one further down that has the reason of both."""


def main(arguments: list[str]) -> int:
    """Write, or with `--check` only compare."""
    text = drawn(TEXT.read_text("utf-8"))
    wanted = {TEXT: text, CLAUSES: dump(parse(text))}
    stale = [path for path, content in wanted.items() if not _holds(path, content)]
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not current: make specs", file=sys.stderr)
        return 1 if stale else 0
    if arguments:
        print("usage: draw.py [--check]", file=sys.stderr)
        return 2
    for path in stale:
        path.write_text(wanted[path], "utf-8")
    return 0


def _holds(path: Path, content: str) -> bool:
    return path.exists() and path.read_text("utf-8") == content


def drawn(text: str) -> str:
    """The specification with its drawn parts as they are now.

    Raises:
        KeyError: a part has a name that nothing is drawn for.
    """
    return _DRAWN.sub(lambda part: f"{part[1]}\n{TABLES[part['name']]()}\n", text)


def _rows(head: str, rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown, its columns named in `head`, with | between."""
    columns = head.split("|")
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("|  |", "| |")


# -- messages ---------------------------------------------------------------------------------


def wire_table(version: int) -> str:
    """The messages of a wire version, with their fields."""
    return _rows(
        "number|message|fields",
        (
            (str(number), message.__name__, ", ".join(_fields(payload)))
            for number, (message, payload) in enumerate(
                zip(MESSAGES, WIRES[version].payloads, strict=True)
            )
        ),
    )


def _fields(payload: Any) -> Iterator[str]:
    for field in payload.subcons:
        yield f"{field.name} {type_name(field.subcon)}"


def type_name(scalar: Any) -> str:
    """The type of a field in the words of the section on encoding."""
    match scalar:
        case Varint(width=width):
            return f"u{8 * width}"
        case Signed():
            return "i32"
        case Text():
            return "str"
        case Octets():
            return "[u8]"
        case Exactly(size=size):
            return f"[u8; {size}]"
        case Sequence(entry=entry):
            return f"[{type_name(entry)}]"
        case Option(value=value):
            return f"Option {type_name(value)}"
        case Tuple(values=values):
            return f"({', '.join(map(type_name, values))})"
    raise TypeError(f"no name for {scalar!r}")


# -- limits -----------------------------------------------------------------------------------


def limits_table() -> str:
    """Every number, with its reason as limits.py tells it.

    Raises:
        KeyError: a number has no words in `LIMITS`.
    """
    reasons = dict(_reasons(inspect.getsource(limits)))
    if missing := LIMITS.keys() - reasons.keys():
        raise KeyError(f"limits.py has no {', '.join(sorted(missing))}")
    for name, other in SAME_REASON.items():
        reasons[name] = f"Ours, for the reason of: {LIMITS[other][0]}."
    return _rows(
        "what|value|why",
        ((LIMITS[name][0], _amount(name), reason) for name, reason in reasons.items()),
    )


def _reasons(source: str) -> Iterator[tuple[str, str]]:
    """Every constant that is a number, and the string right below it, which is its reason."""
    body = ast.parse(source).body
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign):
            match below:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    reason = " ".join(words.split())
                case _:
                    reason = ""
            for name in _numbers(node.targets[0]):
                yield name, reason


def _numbers(target: ast.expr) -> list[str]:
    names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
    return [name for name in names if isinstance(getattr(limits, name), int | float)]


def _amount(name: str) -> str:
    value = getattr(limits, name)
    digits = f"{value:,}" if isinstance(value, int) else f"{value:,g}"
    return f"{digits} {LIMITS[name][1]}".strip()


# -- machines ---------------------------------------------------------------------------------


def machine_table(name: str) -> str:
    """A machine: state by state, rules in the order in which they are asked."""
    return _rows("state|input|condition|does|goes to", machine_rows(MACHINES[name]))


def machine_rows(table: Table[Any]) -> Iterator[tuple[str, ...]]:
    """State, inputs, condition, action and next state, as they are shown."""
    for state in table.states:
        yield from _of_state(table, state)


def _of_state(table: Table[Any], state: Any) -> Iterator[tuple[str, ...]]:
    rows: list[tuple[tuple[str, ...], list[type]]] = []
    for rule in table.rules:
        if rule.source is state:
            key = (_condition(table, rule), rule.action, rule.target.value)
            _row_for(rows, key, rule.on).append(rule.on)
    for (condition, action, target), inputs in rows:
        yield f"**{state.value}**", _names(inputs), condition, action, target
    ignored = [on for on in table.inputs if (state, on) in table.ignored]
    if ignored:
        every = len(ignored) == len(table.inputs)
        yield f"**{state.value}**", "any" if every else _names(ignored), "", "ignores it", ""


def _row_for(
    rows: list[tuple[tuple[str, ...], list[type]]], key: tuple[str, ...], on: type
) -> list[type]:
    """The inputs of the row that a rule belongs to: of one that is there, or of a new last one.

    It joins none in front of another rule for its input, since their order counts.
    """
    for there, inputs in reversed(rows):
        if there == key:
            return inputs
        if on in inputs:
            break
    rows.append((key, []))
    return rows[-1][1]


def _condition(table: Table[Any], rule: Rule[Any]) -> str:
    if rule.when is None:
        return "else" if len(table.cell(rule.source, rule.on)) > 1 else ""
    return rule.guard


def _names(inputs: Iterable[type]) -> str:
    return ", ".join(on.__name__ for on in inputs)


def inputs_table() -> str:
    """What the inputs of the machines mean, in their own words."""
    inputs = {on: None for table in MACHINES.values() for on in table.inputs if on not in MESSAGES}
    return _rows("input|means", ((on.__name__, _summary(on)) for on in inputs))


def _summary(documented: type) -> str:
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def _drawer(draw: Callable[[Any], str], of: Any) -> Callable[[], str]:
    return lambda: draw(of)


TABLES: Final[dict[str, Callable[[], str]]] = {
    **{f"wire {version}": _drawer(wire_table, version) for version in WIRES},
    "limits": limits_table,
    "inputs": inputs_table,
    **{name: _drawer(machine_table, name) for name in MACHINES},
}
"""What is drawn, by the name that it has in the text."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
