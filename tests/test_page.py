"""The page of a run, in Chromium: what it shows, and that it is nothing but what it should be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection

from joinproto.messages import Accept, Hello, RankExited, WorldFormed
from joinproto.testing.fakes import FakeAgent
from joinproto.testing.script import Close, Expect, ReportExits, Say, Until
from tests.support.browser import Tab, browser, needs_chromium
from tests.support.page import Stage, member, rank, staged, state
from tests.support.python import wait_until
from tests.support.roles import RunningController

pytestmark = [pytest.mark.slow, needs_chromium]

HOSTILE = "<img src=x onerror=alert(1)>"
KILLED: dict[str, Any] = {"code": -9, "signal": "SIGKILL", "ended_at_secs": 75.25}
ENDED: dict[str, Any] = {"code": 0, "ended_at_secs": 80.0}


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


@pytest.fixture
def stage() -> Iterator[tuple[Stage, str]]:
    with staged() as both:
        yield both


def plain(text: str) -> str:
    """With blanks alone, where the page keeps words on one line."""
    return text.replace("\xa0", " ")


def text(tab: Tab, selector: str) -> str:
    return plain(tab.evaluate(f"document.querySelector({selector!r}).textContent"))


def is_seen(tab: Tab, selector: str) -> bool:
    return bool(tab.evaluate(f"document.querySelector({selector!r}).checkVisibility()"))


def rows(tab: Tab) -> list[str]:
    cells = "[...row.cells].map((cell) => cell.textContent).join(' ')"
    found = tab.evaluate(f"[...document.querySelectorAll('tbody tr')].map((row) => {cells})")
    return [plain(row) for row in found]


def test_a_world_forms_and_fails_before_its_eyes(tab: Tab, stage: tuple[Stage, str]) -> None:
    show, url = stage[0].show, stage[1]
    show(state("waiting"))
    tab.open(url)
    tab.says("#summary", "0 of 6 ranks joined on 0 hosts. 4 ranks to go until the quorum.")
    assert is_seen(tab, "#hosts-note")

    show(state("waiting", member("ann", rank(0), rank(1))))
    tab.says("#summary", "2 of 6 ranks joined on 1 host. 2 ranks to go until the quorum.")
    assert rows(tab) == ["0 0 waiting – –", "1 1 waiting – –"]
    bar = "document.getElementById('bar')"
    assert tab.evaluate(f"[{bar}.ariaValueNow, {bar}.ariaValueMax]") == ["2", "6"]
    assert tab.evaluate("document.title") == "waiting – 2/6 ranks – joinproto"

    running = [rank(number, "running") for number in range(4)]
    show(state("training", member("ann", *running[:2]), member("bob", *running[2:])))
    tab.says("#summary", "The world has formed: 4 ranks on 2 hosts.")
    assert not is_seen(tab, "#window")
    assert not is_seen(tab, "#failures")

    killed = rank(1, "exited", **KILLED)
    show(state("training", member("ann", running[0], killed), member("bob", *running[2:])))
    tab.says("#summary", "1 rank has failed or been lost.")
    assert text(tab, "#failures li") == "ann – rank 1 failed after 1 min 15 s: SIGKILL (−9)"
    assert rows(tab)[1] == "1 1 failed SIGKILL (−9) 1 min 15 s"
    assert tab.evaluate("document.title") == "training – 1/4 ranks ended, 1 failed – joinproto"

    lost = member(
        "bob",
        rank(2, "lost"),
        rank(3, "exited", **ENDED),
        lost="reset",
        connected=False,
        left_at_secs=81.0,
    )
    last = state(
        "failed",
        member("ann", rank(0, "exited", **ENDED), killed),
        lost,
        outcome="failed",
        reason="rank 1 was killed",
    )
    show(last)
    tab.says("#summary", "The run is over: it failed. 2 ranks have failed or been lost.")
    tab.says("#summary", "Reason: rank 1 was killed.")
    assert "host lost after 1 min 21 s: reset" in text(tab, "#failures")
    assert rows(tab)[2:] == ["2 2 lost – –", "3 3 exited 0 1 min 20 s"]
    assert not is_seen(tab, "#connection")
    assert tab.complaints == []


def test_the_page_of_a_controller(tab: Tab) -> None:
    """The same with nothing made up: a controller, two hosts, a start given by hand."""
    fails, ends = threading.Event(), threading.Event()
    ann = [
        Say(Hello(host=HOSTILE, local_devices=(0, 1), gpus=("H100", "L4"))),
        *(Expect(Accept), Expect(WorldFormed)),
        *(Until(fails.is_set), Say(RankExited(rank=0, code=-9))),
        *(Until(ends.is_set), Say(RankExited(rank=1, code=0)), Close()),
    ]
    bob = [
        Say(Hello(host="bob", local_devices=(0,))),
        *(Expect(Accept), Expect(WorldFormed)),
        *(Until(ends.is_set), ReportExits(), Close()),
    ]
    with RunningController(min_ranks=3, start_mode="manual") as run:
        tab.open(f"http://{run.where}/")
        tab.says("#summary", "0 ranks joined on 0 hosts. 3 ranks to go until the quorum.")
        with FakeAgent(ann).dial(*run.address):
            tab.says(".name", HOSTILE)
            assert not is_seen(tab, "#start-button")
            with FakeAgent(bob).dial(*run.address):
                tab.until("document.getElementById('start-button').checkVisibility()")
                tab.evaluate("document.getElementById('start-button').click()")
                tab.says("#start-answer", "The controller has taken the start.")
                tab.says("#summary", "The world has formed: 3 ranks on 2 hosts.")
                fails.set()
                tab.says("#failures", "SIGKILL (−9)")
                assert [row.split()[2] for row in rows(tab)] == ["failed", "running", "running"]
                ends.set()
                tab.says("#summary", "The run is over: it failed. 1 rank has failed or been lost.")
        assert run.report().outcome == "failed"
    assert [row.split()[2] for row in rows(tab)] == ["failed", "exited", "exited"]
    assert tab.evaluate("document.images.length") == 0
    assert not is_seen(tab, "#connection")
    assert tab.complaints == []


def test_it_does_not_connect_again_when_the_run_is_over(tab: Tab, stage: tuple[Stage, str]) -> None:
    show, url = stage[0].show, stage[1]
    source = "const Real = EventSource; EventSource = class extends Real {"
    source += " constructor(...all) { super(...all); globalThis.source = this; } }"
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=source)
    show(state("waiting"))
    tab.open(url)
    tab.says("#summary", "0 of 6")
    assert tab.evaluate("source.readyState") == 1
    show(state("failed", outcome="window-failed", reason="no quorum"))
    tab.says("#summary", "The run is over: no world formed. Reason: no quorum.")
    assert tab.evaluate("source.readyState") == 2
    assert not is_seen(tab, "#connection")


def test_what_comes_from_the_network_is_text(tab: Tab, stage: tuple[Stage, str]) -> None:
    show, url = stage[0].show, stage[1]
    bad = member(
        HOSTILE,
        rank(0, "lost"),
        gpus=[HOSTILE],
        libtorch=HOSTILE,
        lost=HOSTILE,
        connected=False,
    )
    show(state("failed", bad, reason=HOSTILE))
    tab.open(url)
    tab.says(".name", HOSTILE)
    for selector in (".about", ".link", "#summary", "#failures a", "#failures li span"):
        assert HOSTILE in text(tab, selector), selector
    assert tab.evaluate("document.images.length") == 0
    assert tab.complaints == []


def test_no_markup_is_allowed_to_run_code(tab: Tab, stage: tuple[Stage, str]) -> None:
    """And what a browser complains of is seen here; else finding nothing would prove little."""
    stage[0].show(state("waiting"))
    tab.open(stage[1])
    tab.says("#summary", "0 of 6")
    tab.evaluate(
        f"document.body.insertAdjacentHTML('beforeend', {HOSTILE!r});"
        "new Promise((done) => document.images[0].addEventListener('error', () => done()))"
    )
    assert any("Content Security Policy" in complaint for complaint in tab.complaints)


def test_a_lost_connection_is_told_and_comes_back(tab: Tab, stage: tuple[Stage, str]) -> None:
    stage[0].show(state("waiting", member("ann", rank(0))))
    tab.open(stage[1])
    tab.says("#summary", "1 of 6")
    stage[0].drop()
    tab.until("document.getElementById('connection').checkVisibility()")
    assert "What is shown here is old." in text(tab, "#connection")
    assert tab.evaluate("document.title").startswith("(old) ")
    stage[0].show(state("waiting", member("ann", rank(0)), member("bob", rank(1))))
    tab.says("#summary", "2 of 6")
    assert not is_seen(tab, "#connection")
    assert tab.evaluate("document.title") == "waiting – 2/6 ranks – joinproto"


def test_a_refusal_of_the_events_is_asked_again(tab: Tab, stage: tuple[Stage, str]) -> None:
    hurry = "const real = setTimeout; setTimeout = (call, time) => real(call, time / 100)"
    tab.call("Page.addScriptToEvaluateOnNewDocument", source=hurry)
    stage[0].refuse_events = True
    stage[0].show(state("waiting"))
    tab.open(stage[1])
    tab.until("document.getElementById('connection').checkVisibility()")
    assert "could not be made" in text(tab, "#connection")
    stage[0].refuse_events = False
    tab.says("#summary", "0 of 6")
    assert not is_seen(tab, "#connection")


def test_the_token_is_used_and_leaves_the_address_bar(tab: Tab, stage: tuple[Stage, str]) -> None:
    stage[0].show(state("staging", member("ann", rank(0)), start_mode="manual"))
    tab.open(f"{stage[1]}?token=a%26b")
    tab.says("#summary", "1 of 6")
    assert tab.evaluate("location.href") == stage[1]
    assert "/events?token=a%26b" in stage[0].asked
    tab.evaluate("document.getElementById('start-button').click()")
    tab.says("#start-answer", "The controller has taken the start.")
    assert "/start?token=a%26b" in stage[0].asked


@pytest.mark.parametrize(
    ("phase", "mode", "armed", "seen"),
    [
        ("staging", "manual", False, True),
        ("staging", "hybrid", False, True),
        ("staging", "manual", True, False),
        ("waiting", "manual", False, False),
        ("staging", "auto", False, False),
        ("training", "manual", True, False),
    ],
)
def test_when_a_start_can_be_given(
    tab: Tab, stage: tuple[Stage, str], phase: str, mode: str, armed: bool, seen: bool
) -> None:
    stage[0].show(state(phase, member("ann", rank(0)), start_mode=mode, start_armed=armed))
    tab.open(stage[1])
    tab.says("#phase", phase)
    assert is_seen(tab, "#start-button") == seen


def test_a_refused_start_says_why(tab: Tab, stage: tuple[Stage, str]) -> None:
    stage[0].start_answer = (409, "below quorum")
    stage[0].show(state("staging", member("ann", rank(0)), start_mode="manual"))
    tab.open(stage[1])
    tab.says("#summary", "1 of 6")
    tab.evaluate("document.getElementById('start-button').click()")
    tab.says("#start-answer", "The controller refused the start (409): below quorum")


def test_the_countdown_runs_between_messages(tab: Tab, stage: tuple[Stage, str]) -> None:
    stage[0].show(state("waiting", window_remaining_secs=None, cap_remaining_secs=3671))
    tab.open(stage[1])
    tab.says("dd", "has passed")
    name = "[...document.querySelectorAll('dt')].find((dt) => dt.textContent === 'Given up in')"
    value = f"{name}.nextSibling.textContent"
    before = tab.evaluate(value)
    assert "1:00:00" < before <= "1:01:11"
    tab.until(f"{value} !== '{before}'")
    assert "1:00:00" < tab.evaluate(value) < before


def test_only_what_changed_is_written(tab: Tab, stage: tuple[Stage, str]) -> None:
    """Five hundred hosts of eight ranks, of which one ends and one host is lost to view."""
    members = [
        member(f"host-{at:03}", *(rank(8 * at + of, "running") for of in range(8)))
        for at in range(500)
    ]
    stage[0].show(state("training", *members))
    tab.open(stage[1])
    tab.says("#summary", "The world has formed: 4000 ranks on 500 hosts.")
    tab.evaluate(
        "globalThis.records = [];"
        "new MutationObserver((news) => records.push(...news)).observe("
        "document.getElementById('hosts'),"
        "{subtree: true, childList: true, characterData: true, attributes: true})"
    )
    members[77]["ranks"][1].update(state="exited", **KILLED)
    stage[0].show(state("training", *members))
    tab.says("#summary", "1 rank has failed")
    row = "document.querySelectorAll('tbody')[77].rows[1]"
    assert tab.evaluate(f"[...{row}.cells].map((cell) => cell.textContent)")[2] == "failed"
    # Three cells, and the marks of the row and of the host.
    assert tab.evaluate("records.length") == 5
    del members[3]
    stage[0].show(state("training", *members))
    tab.says("#summary", "3992")
    # One is taken out, and none is moved.
    assert tab.evaluate("records.length") == 6


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
def test_it_fits_the_screen(
    tab: Tab, stage: tuple[Stage, str], tmp_path: Path, width: int, height: int, dark: bool
) -> None:
    long = "gpu-node-with-a-very-long-name-" + "x" * 60
    late: dict[str, Any] = {"code": -26, "signal": "SIGVTALRM", "ended_at_secs": 3599.0}
    hosts = [
        member("ann", rank(1000, "running"), rank(1001, "exited", **KILLED)),
        member(long, rank(1002, "lost"), rank(1003, "exited", **late), lost=long, connected=False),
        *(member(f"host-{at}", rank(at, "exited", **ENDED)) for at in range(3, 9)),
    ]
    waiting = [member(host, rank(at), rank(at + 1)) for at, host in ((0, "ann"), (2, "bob"))]
    scenes = {
        "filling": state("staging", *waiting, start_mode="hybrid", turned_away=2, unadmitted=1),
        "training": state("training", *hosts),
    }
    tab.resize(width, height, dark=dark)
    stage[0].show(scenes["filling"])
    tab.open(stage[1])
    for name, scene in scenes.items():
        stage[0].show(scene)
        tab.says("#phase", scene["phase"])
        picture = tmp_path / f"{name}.png"
        tab.screenshot(picture)
        assert picture.read_bytes().startswith(b"\x89PNG")
        for narrow in (width, 360):
            tab.resize(narrow, height, dark=dark)
            assert tab.evaluate("document.documentElement.scrollWidth") <= narrow
            # What is out of sight is not laid out, and would be of no width.
            shown = "[...document.querySelectorAll('.host')]"
            tab.evaluate(f"{shown}.forEach((host) => host.style.contentVisibility = 'visible')")
            wide = f"{shown}.filter((host) => host.scrollWidth > host.clientWidth)"
            assert tab.evaluate(f"{wide}.map((host) => host.innerText)") == []
        tab.resize(width, height, dark=dark)
    assert tab.complaints == []


def accessible(tab: Tab) -> set[tuple[str, str]]:
    """Role and name of everything that a screen reader is given."""
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    return {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    }


def test_what_a_screen_reader_is_given(tab: Tab, stage: tuple[Stage, str]) -> None:
    stage[0].show(state("waiting", member("ann", rank(0))))
    tab.open(stage[1])
    tab.says("#summary", "1 of 6")
    tab.call("Accessibility.enable")
    wanted = {
        ("heading", "joinproto run"),
        ("heading", "Hosts and their ranks"),
        ("region", "Overview"),
        ("progressbar", "Joined ranks"),
        ("columnheader", "Rank"),
        ("rowheader", "0"),
    }
    # The browser makes this tree some time after it has drawn the page.
    wait_until(lambda: accessible(tab) >= wanted, f"{wanted} are there")
    roles = {role for role, _ in accessible(tab)}
    assert roles >= {"main", "banner", "contentinfo", "status", "table"}
    # The connection is there, and nothing speaks of it.
    assert "alert" not in roles
