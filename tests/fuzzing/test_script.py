from __future__ import annotations

import ast
import sys

from joinproto.fuzzing.script import case_of, script_of
from joinproto.fuzzing.sequence import VERBS, Step
from tests.support.findings import finding

HELLO: tuple[Step, ...] = ({"dial": "c"}, {"say": "Hello"}, {"look": "c", "within": 2.0})


def test_a_script_is_python_and_imports_the_standard_library_alone() -> None:
    tree = ast.parse(script_of(finding("controller", "died", *HELLO)))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_every_word_of_a_case_is_one_of_the_script() -> None:
    steps: tuple[Step, ...] = (
        {"listen": True},
        {"accept": "c"},
        {"dial": "d"},
        {"say": "Accept", "chunk": 3, "pause": 0.1},
        {"say": "Reject", "with": {"reason": "$session"}, "speak": 2},
        {"say": "RankExited", "with": {"rank": -1}},
        {"frame": "00", "key": "zero", "tag": "flipped"},
        {"send": "0102"},
        {"half_close": "c"},
        {"close": "c"},
        {"reset": "c"},
        {"wait": 0.1},
        {"wait": 10, "scaled": True},
        {"look": "c"},
        {"signal": "TERM"},
        {"rank": 0, "do": {"exit": 0}},
        {"rank": 0, "do": [{"ignore": "TERM"}]},
    )
    assert {next(iter(VERBS & step.keys())) for step in steps} == VERBS
    made = case_of(finding("agent", "died", *steps, listening=False))["steps"]
    assert len(made) == len(steps)
    template = script_of(finding("agent", "died"))
    assert all(f"def do_{step['do']}(" in template for step in made)
    assert made[3]["chunk"] == 3
    assert made[12]["seconds"] == 1.3
    # A message that cannot be is not sent.
    assert made[5]["do"] == "wait"
