"""fuzz: the targets hold, each would notice a fault, and what they begin with is current."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import make_corpus, run
from fuzz.seeds import seeds
from fuzz.table import CORPUS, LONGEST, REGRESSIONS, ROOT, TARGETS, Target, read_words
from fuzz.targets import codec as codec_target
from fuzz.targets.http import TOKEN
from joinproto import codec
from joinproto.codec import Decoded, encode
from joinproto.connection import AgentConnection, ControllerConnection
from joinproto.framing import Framer
from joinproto.fuzzing.pieces import BYTES, FRAME, SESSION, Step, units, write_script
from joinproto.grammar import WIRES
from joinproto.keys import OPEN
from joinproto.messages import Accept, Hello, Message
from joinproto.runtime.access import Access
from joinproto.runtime.exchange import Answer
from joinproto.runtime.forward import Liner
from joinproto.runtime.spec import AgentSpec
from joinproto.runtime.web import Web
from joinproto.session import Session
from joinproto.testing import strategies

EVERY = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
SIZE_LIMIT = 300_000

# -- what is in the tree ----------------------------------------------------------------------


@pytest.mark.slow
@EVERY
def test_the_corpus_breaks_nothing(target: Target) -> None:
    cases = target.cases(CORPUS)
    assert cases
    for path in cases:
        target.check(path.read_bytes())


@pytest.mark.parametrize(
    ("target", "path"),
    [(target, path) for target in TARGETS.values() for path in target.cases(REGRESSIONS)],
    ids=lambda each: each.name,
)
def test_a_fault_that_was_mended_does_not_come_back(target: Target, path: Path) -> None:
    target.check(path.read_bytes())


def test_every_regression_belongs_to_a_target() -> None:
    assert {path.name for path in REGRESSIONS.iterdir()} <= TARGETS.keys()


@pytest.mark.slow
def test_corpus_and_dictionaries_are_current() -> None:
    command = [sys.executable, str(ROOT / "make_corpus.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) < SIZE_LIMIT


def test_a_corpus_that_reaches_too_little_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_corpus, "CORPUS", tmp_path)
    spec = TARGETS["spec"]
    (tmp_path / "spec").mkdir()
    nothing = "corpus/spec holds what is no seed, or nothing"
    assert list(make_corpus.stale(spec)) == [nothing]
    (tmp_path / "spec" / "a").write_bytes(seeds("spec")[0])
    (told,) = make_corpus.stale(spec)
    assert told.startswith("corpus/spec does not reach joinproto/")
    (tmp_path / "spec" / "b").write_bytes(b"\x02 is no seed")
    assert list(make_corpus.stale(spec)) == [nothing]


def test_a_corpus_has_the_shortest_case_of_each_way() -> None:
    corpus = make_corpus.chosen(TARGETS["spec"])
    assert len(corpus) == len(set(corpus)) < len(seeds("spec"))
    ways = [frozenset(way) for way in make_corpus.reached(TARGETS["spec"], corpus)]
    assert len(set(ways)) == len(ways)


@EVERY
def test_a_dictionary_is_read_as_it_was_written(target: Target) -> None:
    words = read_words(target.dictionary.read_text())
    assert b"\r\n" in words or b"\xc4\x17\x0d\xf1" in words or b'"\\ud800"' in words
    assert len(words) == len(set(words))


# -- the properties, on other cases -----------------------------------------------------------


def frames(wire: int) -> st.SearchStrategy[bytes]:
    keys = st.sampled_from((OPEN, SESSION))
    messages: st.SearchStrategy[Message] = strategies.messages(wire)
    return st.builds(lambda message, key: encode(message, key=key, wire=wire), messages, keys)


def streams(wires: tuple[int, ...]) -> st.SearchStrategy[bytes]:
    """Frames of these versions, some cut off, and other bytes."""
    whole = st.one_of([frames(wire) for wire in wires])
    part = st.builds(lambda frame, at: frame[: at % len(frame)], whole, st.integers(0, 100))
    return st.lists(whole | part | st.binary(max_size=30), max_size=4).map(b"".join)


def scripts() -> st.SearchStrategy[bytes]:
    """Acts, bytes and payloads in any order."""
    acts = st.builds(Step, st.integers(2, 31), st.integers(0, 255))
    payloads = st.one_of([frames(wire) for wire in WIRES]).map(lambda frame: units(frame)[0].body)
    data = st.builds(lambda data: Step(BYTES, data=data), streams(tuple(WIRES)))
    told = st.builds(lambda payload: Step(FRAME, data=payload), payloads)
    return st.builds(write_script, st.integers(0, 255), st.lists(acts | data | told, max_size=12))


def changed(target: Target) -> st.SearchStrategy[bytes]:
    """Cases of the corpus, changed a few times."""

    def change(case: bytes, seed: int, times: int) -> bytes:
        mutator = target.mutator(Random(seed))
        for _ in range(times):
            case = target.change(mutator)(case, LONGEST)
        return case

    corpus = [path.read_bytes() for path in target.cases(CORPUS)]
    return st.builds(change, st.sampled_from(corpus), st.integers(0, 2**32), st.integers(1, 8))


def made(target: Target) -> st.SearchStrategy[bytes]:
    """Cases that are made from nothing."""
    if target.shape == "stream":
        return streams((target.wire,) if target.wire else tuple(WIRES))
    return st.binary(max_size=200) if target.shape == "text" else scripts()


@pytest.mark.slow
@EVERY
@settings(max_examples=settings().max_examples // 5)
@given(data=st.data())
def test_any_case_breaks_nothing(target: Target, data: st.DataObject) -> None:
    target.check(data.draw(changed(target) | made(target)))


# -- a fault in what is tested is noticed -----------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def drop_first(patch: pytest.MonkeyPatch) -> None:
    """A framer that takes a byte that comes alone for nothing, where nothing came before."""
    feed = Framer.feed

    def lossy(self: Framer, data: bytes) -> None:
        feed(self, data if self.held or len(data) > 1 else b"")

    patch.setattr(Framer, "feed", lossy)


def hide_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Framer, "held", property(lambda self: 0))


def take_every_tag(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(codec, "check_tag", lambda *frame: None)
    patch.setattr(codec_target, "check_tag", lambda *frame: None)


def overlook(patch: pytest.MonkeyPatch) -> None:
    """A decoder that finds nothing remarkable."""
    decode = codec.decode_payload

    def silent(payload: bytes, *, wire: int) -> Decoded:
        return Decoded(message=decode(payload, wire=wire).message, notes=())

    patch.setattr(codec_target, "decode_payload", silent)


def show_salts(patch: pytest.MonkeyPatch) -> None:
    for shown in (Accept, AgentSpec):
        patch.setattr(shown, "__repr__", lambda self: repr(vars(self)))


def send_twice(patch: pytest.MonkeyPatch) -> None:
    for end in (AgentConnection, ControllerConnection):

        def send(self: Any, message: Message, once: Any = end._send) -> None:
            once(self, message)
            once(self, message)

        patch.setattr(end, "_send", send)


def know_no_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "expire", lambda self, now: [])


def raise_at_the_end(patch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, now: float) -> list[Any]:
        raise KeyError(now)

    for end in (AgentConnection, ControllerConnection):
        patch.setattr(end, "receive_eof", fail)


def overlook_breaks(patch: pytest.MonkeyPatch) -> None:
    for end in (AgentConnection, ControllerConnection):
        patch.setattr(end, "link_broken", lambda self, cause, now: [])


def lose_the_head(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ControllerConnection, "head", b"")


def lose_the_last_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Liner, "finish", lambda self: b"")


def tear_lines(patch: pytest.MonkeyPatch) -> None:
    """A liner that puts no prefix in front of what it held back."""
    finish = Liner.finish
    patch.setattr(Liner, "finish", lambda self: finish(self).removeprefix(self.prefix))


def let_all_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Access, "why_not_started", lambda self, request: None)


def tell_the_token(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Access, "why_not_shown", lambda self, request: (401, f"not without {TOKEN}"))


def answer_otherwise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Web, "refuse", lambda self, status: Answer(status=418, body=b""))


def forget_the_host(patch: pytest.MonkeyPatch) -> None:
    to_hex = AgentSpec.to_hex
    patch.setattr(AgentSpec, "to_hex", lambda self: to_hex(self)[:-2] + "20")


FAULTS: dict[str, tuple[Patch, ...]] = {
    "agent": (drop_first, take_every_tag, send_twice, know_no_deadline, raise_at_the_end),
    "codec-2": (take_every_tag, overlook, show_salts),
    "codec-4": (take_every_tag, overlook, show_salts),
    "controller": (take_every_tag, send_twice, know_no_deadline, lose_the_head, raise_at_the_end),
    "forwarder": (lose_the_last_line, tear_lines),
    "framing": (drop_first, hide_held),
    "http": (let_all_start, tell_the_token, answer_otherwise),
    "pair": (overlook_breaks, raise_at_the_end),
    "spec": (show_salts, forget_the_host),
}


def test_every_target_has_its_faults() -> None:
    assert FAULTS.keys() == TARGETS.keys()


@pytest.mark.parametrize(
    ("name", "patch"),
    [(name, patch) for name, patches in FAULTS.items() for patch in patches],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_a_fault_is_noticed(name: str, patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TARGETS[name]
    patch(monkeypatch)
    assert any(breaks(target, case) for case in seeds(name))


def breaks(target: Target, case: bytes) -> bool:
    """Whether a case breaks a target's invariant."""
    try:
        target.check(case)
    except Exception:
        return True
    return False


# -- the driver -------------------------------------------------------------------------------

HELLO = encode(Hello(host="a", local_devices=(0,)), key=OPEN, wire=4)


def test_each_layer_is_reached_by_the_custom_mutator() -> None:
    natives: list[bytes] = []

    def native(data: bytes, max_size: int) -> bytes:
        natives.append(data)
        return data + b"!"

    mutate = run.mutation_of(TARGETS["codec-4"], native)
    cases = [mutate(HELLO, 200, seed) for seed in range(400)]
    assert cases == [mutate(HELLO, 200, seed) for seed in range(400)]
    assert all(len(case) <= 200 for case in cases)
    payload = units(HELLO)[0].body
    # libFuzzer's own changes, of the stream and of the payload behind a new tag.
    assert {HELLO, payload} <= set(natives)
    assert HELLO + b"!" in cases
    assert encode_frame_of(payload + b"!") in cases
    kept = [case for case in cases if case[8:16] == HELLO[8:16] and case[:4] == HELLO[:4]]
    assert any(case[16:] != HELLO[16:] for case in kept), "no stale tag"


def encode_frame_of(payload: bytes) -> bytes:
    return codec.encode_frame(payload, key=OPEN, wire=4)


@EVERY
def test_every_targets_cases_can_be_changed(target: Target) -> None:
    mutate = run.mutation_of(target, lambda data, size: data)
    assert len({mutate(b"", 100, seed) for seed in range(50)}) > 5


def test_the_targets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == 0
    assert capsys.readouterr().out.split() == [*TARGETS]


def test_a_case_can_be_given_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "case"
    path.write_bytes(HELLO)
    assert run.main(["framing", str(path)]) == 0
    hide_held(monkeypatch)
    path.write_bytes(HELLO[:-1])
    with pytest.raises(AssertionError, match="^bytes were lost$"):
        run.main(["framing", str(path)])


def test_a_driver_without_atheris_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    assert run.main(["spec"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("fuzz: there is no atheris for this Python; install it: ")
    assert said.count("\n") == 1


def test_libfuzzer_is_given_what_is_in_the_tree(tmp_path: Path) -> None:
    given = run.options(TARGETS["agent"], 7, tmp_path, ["-runs=3"])
    assert {"-max_total_time=7", "-runs=3", f"-artifact_prefix={tmp_path}/agent/"} <= set(given)
    assert given[-3:] == [str(each / "agent") for each in (tmp_path, CORPUS, REGRESSIONS)]
