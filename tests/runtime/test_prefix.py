"""prefix: the published form, and templates that cannot fail once they are taken."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.effects import Spawn
from joinproto.errors import ConfigError
from joinproto.runtime import prefix as module
from joinproto.runtime.prefix import FIELDS, STANDARD_PREFIX, Prefix, now

RANK = Spawn(slot=1, artifact_hex="", rank=7, local_rank=1, device=3, wire=4)
RELAY = Spawn(slot=0, artifact_hex="", rank=None, local_rank=None, device=None, wire=4)


def of(template: str | None, spawn: Spawn = RANK, stream: str = "out", host: str = "höst") -> bytes:
    return Prefix(template).of(host, spawn, stream)()


def test_the_published_form() -> None:
    assert STANDARD_PREFIX.of("höst", RANK, "out")() == "[höst:3:r7] ".encode()
    assert STANDARD_PREFIX.of("höst", RELAY, "err")() == "[höst:relay] ".encode()
    assert not STANDARD_PREFIX.changes


@pytest.mark.parametrize(
    ("template", "rank", "relay"),
    [
        ("", "", ""),
        ("{rank}> ", "7> ", "relay> "),
        ("{host}/{device}/{local_rank}/{stream} ", "höst/3/1/err ", "höst/-/-/err "),
        ("{rank:>3}|", "  7|", "relay|"),
        ("{rank:03}|", "007|", "relay|"),
        ("{rank:*^7}|", "***7***|", "*relay*|"),
        ("{{{rank}}} {{time}}", "{7} {time}", "{relay} {time}"),
        ("\t\r\udcff", "\t\r\udcff", "\t\r\udcff"),
    ],
)
def test_a_template(template: str, rank: str, relay: str) -> None:
    for spawn, text in ((RANK, rank), (RELAY, relay)):
        assert of(template, spawn, "err") == text.encode(errors="surrogateescape")
    assert not Prefix(template).changes


def test_a_template_with_the_time_is_made_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(["12:00:00.000", "12:00:00.001"])
    monkeypatch.setattr(module, "now", lambda: next(times))
    made = Prefix("{time} r{rank} ")
    assert made.changes
    fresh = made.of("a", RANK, "out")
    assert [fresh(), fresh()] == [b"12:00:00.000 r7 ", b"12:00:00.001 r7 "]


def test_the_time_of_day() -> None:
    assert re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d:[0-6]\d\.\d{3}", now())


@pytest.mark.parametrize(
    "template",
    [
        "{",
        "}",
        "{rank",
        "{}",
        "{0}",
        "{ rank}",
        "{world}",
        "{rank.real}",
        "{host[0]}",
        "{rank!r}",
        "{rank:d}",
        "{rank:s}",
        "{rank:=4}",
        "{rank:+}",
        "{rank:.1}",
        "{rank:100}",
        "{host:{device}}",
        "{host:{device}<3}",
        "{host:{<3}",
        "a\nb",
    ],
)
def test_a_template_that_cannot_be_used(template: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Prefix(template)
    assert str(caught.value).startswith(f"--prefix {template!r}: ")
    assert "\n" not in str(caught.value)


def test_what_a_template_may_hold_is_told() -> None:
    with pytest.raises(ConfigError) as caught:
        Prefix("{x}")
    assert all(f"{{{name}}}" in str(caught.value) for name in FIELDS)


@given(st.text("{}:!<>^.0123x", max_size=6).map(lambda text: text.replace("x", "rank")))
def test_what_is_taken_never_fails(template: str) -> None:
    try:
        made = Prefix(template)
    except ConfigError:
        return
    for spawn in (RANK, RELAY):
        assert len(made.of("a", spawn, "out")()) < 600
