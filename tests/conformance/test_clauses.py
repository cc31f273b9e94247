"""The clauses, their parser, and specs/protocol.md, which they are read from."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from joinproto.cli.machines import MACHINES
from joinproto.codec import encode
from joinproto.conformance.clauses import LEVELS, ROLES, Clause, dump, load, parse, sentence
from joinproto.grammar import I32, U64, Octets
from joinproto.keys import OPEN, Salt
from joinproto.messages import Hello
from joinproto.runtime.artifacts import build_envelope, build_relay_spec
from joinproto.runtime.spec import AgentSpec
from specs import draw

SPECIFICATION = Path(__file__).parents[2] / "specs" / "protocol.md"
TEXT = SPECIFICATION.read_text("utf-8")
CLAUSES = parse(TEXT)

BOTH = "*Binds: agent, controller. Seen: agent, controller.*"
ONE = f"# Title\n\n## 3. Frames\n\n**JP-FRM-001** A `frame` MUST come.\n{BOTH}\n"

ODD_WORDS = ("SHALL", "SHALL NOT", "REQUIRED", "RECOMMENDED", "NOT RECOMMENDED", "OPTIONAL")
"""Of RFC 2119 too; not used."""


def clause(sentence: str = "It MUST.", notes: str = BOTH, id: str = "JP-FRM-001") -> str:
    return f"**{id}** {sentence}\n{notes}\n"


# -- the parser -------------------------------------------------------------------------------


def test_a_clause_and_all_that_is_said_of_it() -> None:
    text = ONE + "*Published: agents `never` do.*\n\nMore text.\n"
    assert parse(text) == (
        Clause(
            id="JP-FRM-001",
            level="MUST",
            text="A frame MUST come.",
            section="Frames",
            binds=("agent", "controller"),
            seen=("agent", "controller"),
            unseen="",
            published="agents never do.",
        ),
    )


def test_a_sentence_over_several_lines_is_one_line() -> None:
    assert parse(clause("It MUST\nnot matter\nwhere it breaks."))[0].text == (
        "It MUST not matter where it breaks."
    )


@pytest.mark.parametrize("level", LEVELS)
def test_every_level(level: str) -> None:
    assert parse(clause(f"It {level} be."))[0].level == level


@pytest.mark.parametrize(
    ("notes", "binds", "seen", "unseen"),
    [
        ("*Binds: agent. Seen: agent.*", ("agent",), ("agent",), ""),
        ("*Binds: controller. Seen: no, it is dark.*", ("controller",), (), "it is dark."),
        (
            "*Binds: agent, controller. Seen: no, dark, and far.*",
            ("agent", "controller"),
            (),
            "dark, and far.",
        ),
        (
            "*Binds: agent, controller. Seen: controller; not agent, it closes.*",
            ("agent", "controller"),
            ("controller",),
            "it closes.",
        ),
    ],
)
def test_who_keeps_it_and_who_sees_it(
    notes: str, binds: tuple[str, ...], seen: tuple[str, ...], unseen: str
) -> None:
    found = parse(clause(notes=notes))[0]
    assert (found.binds, found.seen, found.unseen) == (binds, seen, unseen.rstrip("."))


def test_a_subsection_is_a_section_of_its_own() -> None:
    assert [found.section for found in parse(f"## 1. A b\n\n### C\n\n{clause()}")] == ["C"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"\n{clause()}\n{clause()}", "line 5: JP-FRM-001 is there twice"),
        (clause("It must."), "line 1: JP-FRM-001 has one of .*; it has none"),
        (clause("It MUST or MAY."), "line 1: JP-FRM-001 has one of .*; it has MUST, MAY"),
        (clause(id="JP-FRM-1"), "line 1: a clause begins with"),
        (clause(id="JP-frm-001"), "line 1: a clause begins with"),
        ("**JP-FRM-001**\n", "line 1: a clause begins with"),
        ("**JP-FRM-001** It MUST.\n", "line 2: a clause ends with"),
        (clause(notes="*Binds: agent.*"), "line 2: a clause ends with"),
        (clause(notes="*Binds: relay. Seen: relay.*"), "line 2: 'relay' is no role"),
        (clause(notes="*Binds: agent, agent. Seen: agent.*"), "line 2: a role is named twice"),
        (clause(notes="*Binds: agent. Seen: no.*"), "line 2: .* takes a reason"),
        (clause(notes="*Binds: agent. Seen: controller.*"), "line 2: Seen names each role"),
        (clause(notes="*Binds: agent, controller. Seen: agent.*"), "line 2: Seen names each role"),
        (
            clause(notes="*Binds: agent, controller. Seen: agent; not controller.*"),
            "line 2: .* takes a reason",
        ),
        (
            clause(notes="*Binds: agent, controller. Seen: agent; not agent, it is dark.*"),
            "line 2: Seen names each role",
        ),
        (clause(notes=f"{BOTH}\nMore."), "line 3: behind .* comes .*Published"),
    ],
)
def test_what_is_no_clause(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse(text)


# -- what comes with the package --------------------------------------------------------------


def test_the_clauses_that_come_with_the_package_are_those_of_the_specification() -> None:
    assert tuple(load().values()) == CLAUSES, "the specification changed: make specs"
    assert list(load()) == [found.id for found in CLAUSES]


def test_the_sentence_of_a_clause() -> None:
    assert sentence(CLAUSES[0].id) == CLAUSES[0].text
    with pytest.raises(KeyError):
        sentence("JP-FRM-999")


def test_what_is_drawn_is_current() -> None:
    assert draw.drawn(TEXT) == TEXT, "the code changed: make specs"
    assert draw.CLAUSES.read_text("utf-8") == dump(CLAUSES), "make specs"


def test_all_that_can_be_drawn_is_in_the_text_once() -> None:
    assert Counter(re.findall(r"<!-- table: (.+) -->", TEXT)) == Counter(list(draw.TABLES))


def test_the_script_tells_what_is_not_current_and_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, clauses = tmp_path / "protocol.md", tmp_path / "clauses.json"
    text.write_text(f"{ONE}\n<!-- table: wire 2 -->\nold\n<!-- end -->\n")
    for name, value in (("ROOT", tmp_path), ("TEXT", text), ("CLAUSES", clauses)):
        monkeypatch.setattr(draw, name, value)
    assert draw.main(["--check"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "protocol.md is not current: make specs",
        "clauses.json is not current: make specs",
    ]
    assert draw.main(["--help"]) == 2
    assert draw.main([]) == 0
    assert draw.main(["--check"]) == 0
    assert "| 5 | Abort | reason str |" in text.read_text()
    assert "JP-FRM-001" in clauses.read_text()


def test_a_number_without_words_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(draw.LIMITS, "GRACE")
    with pytest.raises(KeyError, match="GRACE"):
        draw.limits_table()


def test_words_without_a_number_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(draw.LIMITS, "GONE", ("gone", "s"))
    with pytest.raises(KeyError, match="GONE"):
        draw.limits_table()


@pytest.mark.parametrize("name", MACHINES)
def test_rows_of_a_machine_keep_the_order_of_its_rules(name: str) -> None:
    """For one state and input the first row that applies counts, as in the table."""
    table = MACHINES[name]
    rows = list(draw.machine_rows(table))
    for state in table.states:
        for on in table.inputs:
            wanted = [rule.action for rule in table.cell(state, on)]
            shown = [
                does
                for there, inputs, _, does, _ in rows
                if there == f"**{state.value}**" and on.__name__ in inputs.split(", ")
            ]
            if (state, on) in table.ignored:
                # A state that ignores all has one row, for any input.
                assert shown in (["ignores it"], []), (state, on)
            else:
                assert shown == wanted, (state, on)


# -- the text ---------------------------------------------------------------------------------


def test_ids_count_up_within_a_section() -> None:
    by_part = Counter(found.id[3:6] for found in CLAUSES)
    wanted = [f"JP-{part}-{at:03}" for part in by_part for at in range(1, by_part[part] + 1)]
    assert [found.id for found in CLAUSES] == wanted
    assert all(
        (one.section == other.section) == (one.id[3:6] == other.id[3:6])
        for one, other in pairwise(CLAUSES)
    )


def test_every_clause_that_is_referred_to_is_there() -> None:
    assert set(re.findall(r"JP-[A-Z]{3}-[0-9]{3}", TEXT)) == set(load())


def test_words_of_rfc_2119_stand_in_clauses_alone() -> None:
    outside = re.sub(r"```.*?```|`[^`]*`", "", TEXT, flags=re.DOTALL)
    paragraphs = [part for part in outside.split("\n\n") if not part.startswith("**JP-")]
    words = re.compile(rf"\b({'|'.join((*LEVELS, *ODD_WORDS))})\b")
    assert [part for part in paragraphs if words.search(part)] == []
    assert [found.id for found in CLAUSES if re.search(r"\b(SHALL|REQUIRED)\b", found.text)] == []


@pytest.mark.parametrize("role", ROLES)
def test_either_role_has_clauses_that_are_seen(role: str) -> None:
    assert sum(role in found.seen for found in CLAUSES) > 100


def test_sentences_end_and_reasons_are_given() -> None:
    for found in CLAUSES:
        assert found.text.endswith("."), found.id
        assert bool(found.unseen) == (found.seen != found.binds), found.id


def test_its_own_links_lead_to_its_headings() -> None:
    titles = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\(#([^)]+)\)", TEXT)) <= anchors


def hex_of(lines: list[str]) -> bytes:
    """The bytes in front of the remarks."""
    return bytes.fromhex("".join(line.partition("   ")[0] for line in lines))


def test_the_worked_example_is_what_is_sent() -> None:
    shown = hex_of(block_with("c4 17 0d f1").splitlines())
    hello = Hello(host="node-a", local_devices=(0, 1), gpus=("cuda:0", "cuda:1"))
    assert shown == encode(hello, key=OPEN, wire=2)
    longer = encode(hello, key=OPEN, wire=4)
    assert longer[24:] == shown[24:] + bytes(3)


def test_the_spec_that_is_shown_is_taken() -> None:
    shown = block_with("7b22686f7374")
    digits, _, document = shown.partition("\n\n")
    assert bytes.fromhex(digits.replace("\n", "")).decode() == document
    spec = AgentSpec.from_hex(digits.replace("\n", ""))
    assert (spec.host, spec.controller_host, spec.controller_port) == ("node-a", "10.0.0.1", 7077)


def test_the_artifacts_that_are_shown_are_those_that_are_made() -> None:
    host: dict[str, Any] = {
        "controller_host": "10.0.0.1",
        "controller_port": 7077,
        "world_size": 3,
        "host": "node-b",
        "ranks": (2,),
        "salt": Salt(bytes(range(16))),
    }
    envelope = build_envelope(num_workers=2, local_devices=(0,), **host)
    relay = build_relay_spec(**host)
    assert json.loads(block_with('{"controller": ')) == json.loads(bytes.fromhex(envelope))
    assert json.loads(block_with('{"host": "node-b"')) == json.loads(bytes.fromhex(relay))


def block_with(start: str) -> str:
    """The block of the text that begins so."""
    blocks = re.findall(r"```\w+\n(.*?)\n```", TEXT, re.DOTALL)
    (found,) = (block for block in blocks if block.startswith(start))
    return str(found)


def test_the_examples_of_numbers_are_what_is_sent() -> None:
    section = TEXT.partition("## 5. Payload encoding")[2].partition("\n**JP-")[0]
    examples = re.findall(r"\| (u|u8|i32) (−?[\d,^]+)[^|]*\| `([0-9a-f ]+)`", section)
    assert len(examples) == 13
    for kind, value, shown in examples:
        number = number_of(value)
        wanted = {"u": U64.bytes_of, "i32": I32.bytes_of, "u8": last_octet}[kind](number)
        assert bytes.fromhex(shown) == wanted, (kind, value)


def number_of(text: str) -> int:
    """A number of the text, which may be a power."""
    sign, digits = (-1, text[1:]) if text.startswith("−") else (1, text)
    base, _, power = digits.replace(",", "").partition("^")
    value: int = int(base) ** int(power or 1)
    return sign * value


def last_octet(number: int) -> bytes:
    return Octets().bytes_of((number,))[1:]
