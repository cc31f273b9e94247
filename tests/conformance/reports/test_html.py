"""The HTML report: what it shows, that it is one file, and that text in it stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from websockets.sync.client import ClientConnection

from joinproto.conformance.reports import html
from joinproto.conformance.results import Happening, Record, Summary
from joinproto.conformance.verdicts import Verdict
from tests.support import records
from tests.support.browser import Tab, browser, needs_chromium
from tests.support.records import HOSTILE, failed, record, result

VOID = {"meta", "link", "input"}


class Outline(HTMLParser):
    """The elements of a page, each with its attributes, and the text in it by element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("script", "style"):
            self.words.append(data)


TALK = (
    Happening(at=0.125, who="target", what="open", connection="c"),
    Happening(at=0.25, who="target", what="bytes", connection="c", hex="41ff", size=2, text="Hi"),
    Happening(at=0.5, who="suite", what="bytes", connection="c", hex="00" * 2000, size=2000),
)
WHOLE = record(
    result(case="agent/tag/fine", clauses=("JP-FRM-010",), got="all well"),
    failed(case="agent/framing/bad", happenings=TALK, stderr="boom", attempts=2, notes=("odd",)),
    result(case="agent/tag/gone", verdict=Verdict.UNSUPPORTED, got="no salt file"),
    summary=Summary(counts={}, stale=("agent/old/*",), exit_code=1, seconds=2.5),
)


def words(whole: Record) -> str:
    return re.sub(r"\s+", " ", " ".join(Outline(html.render(whole)).words))


def test_what_it_shows() -> None:
    shown = words(WHOLE)
    for text in (
        "1 of 2 passed; 1 failed; 1 unsupported",
        "./my-agent --quiet",
        "time scale 0.1",
        "run again up to 1 time; a failed one never is",
        "no case matches agent/old/*",
        "JP-FRM-012 A receiver MUST NOT act on a payload",
        "broken JP-FRM-012: A length above the cap MUST end the connection.",
        "expected the connection ends within 3 s",
        "got nothing within 3 s",
        "note odd",
        "in the last of 2 attempts",
        "repeat joinproto conform agent --case agent/framing/length-over-cap -- ./my-agent",
        "capture pcap/agent.framing.bad_wire-4_open.pcap",
        "stderr boom",
        "0.250 s target → suite, c: 2 bytes",
        "0000 41 ff A· Hi",
        "… 976 more bytes",
        "no further frame: 0x00000000 is not a frame's magic",
        "connects",
    ):
        assert text in shown


def test_what_is_unexpected_comes_first() -> None:
    page = html.render(WHOLE)
    assert re.findall(r'<span class="id">(.*)</span>', page) == [
        "agent/framing/bad@4-open",
        "agent/tag/gone@4-open",
        "agent/tag/fine@4-open",
    ]


def test_a_run_that_was_cut_short_says_so() -> None:
    assert "cut short after 1 of 9 results" in words(record(result(), selected=9))


def test_a_clause_that_is_not_known_is_shown_as_such() -> None:
    assert "JP-NONE-999 not a clause that this joinproto knows" in words(
        record(result(clauses=("JP-NONE-999",)))
    )


def test_it_is_one_file() -> None:
    outline = Outline(html.render(WHOLE))
    assert outline.addresses
    assert all(address.startswith("data:image/svg+xml,") for address in outline.addresses)
    style = (Path(html.__file__).parent / "page" / "report.css").read_text()
    assert "url(" not in style
    assert "@import" not in style


def filled(text: str) -> Record:
    """A record with this text wherever a target may bring some in."""
    said = Happening(at=0, who="target", what="bytes", connection=text, hex="00", size=1, text=text)
    one = {
        "case": f"agent/{text.replace('/', '')}/b",
        **dict.fromkeys(("title", "broken", "expected", "got", "stderr", "repeat"), text),
        **dict.fromkeys(("notes", "clauses"), (text,)),
        "expected_failure": text,
        "happenings": (said,),
    }
    return record(
        failed(**one), target=text, started=text, summary=Summary(counts={}, stale=(text,))
    )


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_of_a_target_is_text(hostile: str) -> None:
    assert Outline(html.render(filled(hostile))).tags == Outline(html.render(filled("word"))).tags


@settings(max_examples=15)
@given(records.records)
def test_any_record_can_be_shown(whole: Record) -> None:
    page = html.render(whole)
    page.encode()
    tags = [tag for tag, _ in Outline(page).tags]
    assert tags.count("script") == tags.count("style") == 1
    assert tags.count("details") == len(whole.results)
    attributes = {name for _, names in Outline(page).tags for name in names}
    assert not {name for name in attributes if name.startswith("on")}


# -- in a browser -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConnection]:
    with browser(tmp_path_factory.mktemp("browser") / "profile") as connection:
        yield connection


@pytest.fixture
def tab(chromium: ClientConnection) -> Iterator[Tab]:
    tab = Tab(chromium)
    tab.resize(1280, 800)
    yield tab
    tab.close()


def load(tab: Tab, whole: Record, path: Path) -> None:
    path.write_text(html.render(whole))
    tab.open(path.as_uri())


def seen(tab: Tab) -> list[str]:
    """The ids of the cases that are seen."""
    found = "[...document.querySelectorAll('.case')].filter((each) => each.checkVisibility())"
    return list(tab.evaluate(f"{found}.map((each) => each.querySelector('.id').textContent)"))


def enter(tab: Tab, field: str, value: str) -> None:
    tab.evaluate(
        f"{{ const field = document.querySelector('#filter [name={field}]');"
        f"field.value = {value!r}; field.dispatchEvent(new Event('input', {{bubbles: true}})) }}"
    )


@pytest.mark.slow
@needs_chromium
def test_cases_are_found(tab: Tab, tmp_path: Path) -> None:
    load(tab, WHOLE, tmp_path / "report.html")
    every = ["agent/framing/bad@4-open", "agent/tag/gone@4-open", "agent/tag/fine@4-open"]
    bad, gone, fine = every
    assert seen(tab) == every
    enter(tab, "text", "ALL well")
    assert seen(tab) == [fine]
    tab.says("#shown", "1 of 3 shown")
    tab.evaluate("document.querySelector('#filter [type=reset]').click()")
    tab.says("#shown", "3 of 3 shown")
    enter(tab, "clause", "JP-FRM-012")
    assert seen(tab) == [bad, gone]
    enter(tab, "group", "agent/tag")
    assert seen(tab) == [gone]
    tab.evaluate("document.querySelector('#filter [type=reset]').click()")
    tab.says("#shown", "3 of 3 shown")
    tab.evaluate("document.querySelector('#filter [name=unexpected]').click()")
    assert seen(tab) == [bad]
    tab.evaluate("document.querySelector('#overview tfoot [data-only=UNSUPPORTED]').click()")
    assert seen(tab) == [gone]
    assert tab.complaints == []


@pytest.mark.slow
@needs_chromium
def test_no_script_of_a_target_runs(tab: Tab, tmp_path: Path) -> None:
    hostile = [filled(text.replace("alert(1)", "window.ran=1")).results[0] for text in HOSTILE]
    load(tab, record(*hostile), tmp_path / "report.html")
    assert len(seen(tab)) == len(HOSTILE)
    tab.evaluate("document.querySelectorAll('.case').forEach((each) => { each.open = true })")
    assert tab.evaluate("typeof window.ran") == "undefined"
    assert tab.complaints == []


@pytest.mark.slow
@needs_chromium
def test_the_policy_stops_a_script_that_escaping_let_through(tab: Tab, tmp_path: Path) -> None:
    page = html.render(WHOLE).replace("all well", "<img src=x onerror='window.ran=1'>")
    path = tmp_path / "report.html"
    path.write_text(page.replace("</main>", "<script>window.ran = 1</script></main>"))
    tab.open(path.as_uri())
    assert tab.evaluate("typeof window.ran") == "undefined"
    assert len(tab.complaints) >= 2


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_the_window(tab: Tab, tmp_path: Path, width: int, dark: bool) -> None:
    load(tab, filled("x" * 300), tmp_path / "report.html")
    tab.resize(width, 800, dark=dark)
    tab.evaluate("document.querySelectorAll('.case').forEach((each) => { each.open = true })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
