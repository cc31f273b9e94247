"""Drawings of a table, for people (Mermaid, Graphviz) and for programs (JSON).

An arrow stands for all rules from one state to another, so that a machine fits a page.  Each line
on it reads `inputs [condition] / action`, as in UML; `[else]` is what applies when no condition of
the same input in the same state did.  A line without input goes on from the one above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from enum import Enum
from textwrap import wrap
from typing import Any

from joinproto.table import Rule, Table

LABEL_WIDTH = 52
"""Characters after which a line on an arrow is broken."""

NO_BREAK = "\N{NO-BREAK SPACE}"


def mermaid(table: Table[Any]) -> str:
    """The machine as a Mermaid state diagram."""
    lines = [f"%% The {table.name} machine, drawn by: joinproto machines {table.name}"]
    lines += ["stateDiagram-v2", f"    [*] --> {table.initial.value}"]
    lines += [
        f"    {source.value} --> {target.value} : {'<br>'.join(label)}"
        for source, target, label in arrows(table)
    ]
    lines += [f"    {state.value} --> [*]" for state in table.states if state in table.final]
    return "".join(f"{line}\n" for line in lines)


def dot(table: Table[Any]) -> str:
    """The machine as a Graphviz graph."""
    lines = [f"// The {table.name} machine, drawn by: joinproto machines {table.name} --format dot"]
    lines += [
        f"digraph {table.name} {{",
        "    node [shape=box, style=rounded, fontname=Helvetica];",
    ]
    lines += ["    edge [fontname=Helvetica, fontsize=9];", "    start [shape=point];"]
    lines += [
        f"    {state.value}{' [peripheries=2]' if state in table.final else ''};"
        for state in table.states
    ]
    lines += [f"    start -> {table.initial.value};"]
    for source, target, label in arrows(table):
        text = "".join(f"{part}\\l" for part in label)  # \l ends a line that is set flush left
        lines.append(f'    {source.value} -> {target.value} [label="{text}"];')
    return "".join(f"{line}\n" for line in (*lines, "}"))


def body(table: Table[Any]) -> dict[str, Any]:
    """The machine, whole, as JSON values: its rules in the order in which they are asked, and the
    pairs of state and input that change nothing, or cannot happen."""
    return {
        "name": table.name,
        "states": [state.value for state in table.states],
        "initial": table.initial.value,
        "final": [state.value for state in table.states if state in table.final],
        "inputs": [on.__name__ for on in table.inputs],
        "rules": [
            {
                "source": rule.source.value,
                "input": rule.on.__name__,
                "guard": rule.guard or None,
                "action": rule.action,
                "target": rule.target.value,
            }
            for rule in table.rules
        ],
        "ignored": _listed(table, table.ignored),
        "illegal": _listed(table, table.illegal),
    }


def arrows(table: Table[Any]) -> Iterator[tuple[Enum, Enum, list[str]]]:
    """Every two states with rules between them, and the lines to write on their arrow."""
    between: dict[tuple[Enum, Enum], list[Rule[Any]]] = {}
    for rule in table.rules:
        between.setdefault((rule.source, rule.target), []).append(rule)
    for (source, target), rules in between.items():
        yield source, target, list(_label(table, rules))


def _label(table: Table[Any], rules: list[Rule[Any]]) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for rule in rules:
        alike.setdefault(f"{_condition(table, rule)}/ {rule.action}", []).append(rule.on.__name__)
    for rest, inputs in alike.items():
        # Condition and action stay whole: textwrap does not break at a no-break space.
        text = f"{', '.join(inputs)} {rest.replace(' ', NO_BREAK)}"
        for line in wrap(text, LABEL_WIDTH, break_long_words=False):
            yield line.replace(NO_BREAK, " ")


def _condition(table: Table[Any], rule: Rule[Any]) -> str:
    if rule.when is None:
        return "[else] " if len(table.cell(rule.source, rule.on)) > 1 else ""
    return f"[{rule.guard}] "


def _listed(table: Table[Any], cells: Set[tuple[Enum, type]]) -> dict[str, list[str]]:
    return {
        state.value: [on.__name__ for on in table.inputs if (state, on) in cells]
        for state in table.states
        if any((state, on) in cells for on in table.inputs)
    }
