"""The project's vectors: made, well formed, in line with what was published, and kept by us."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from joinproto import codec
from joinproto import effects as fx
from joinproto.codec import Note
from joinproto.connection import ControllerConnection
from joinproto.errors import ConfigError, DecodeError, Stage
from joinproto.framing import Framer
from joinproto.grammar import JOIN_KIND, WIRES
from joinproto.keys import Salt
from joinproto.machines.controller import Admission
from joinproto.runtime.spec import AgentSpec
from tests.support.cases import (
    FEEDS,
    FOLDER,
    GROUPS,
    SCHEMA,
    Case,
    book,
    cases,
    data_of,
    message_of,
)
from tests.support.vectors import VECTORS

ROOT = Path(__file__).parents[1]
NOW = 100.0
ALL = [(group, case) for group in GROUPS for case in cases(group)]


def every(group: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases(group), ids=lambda case: case["id"])


# -- the files --------------------------------------------------------------------------------


def make(*options: str, specs: Path = ROOT / "specs") -> tuple[int, str]:
    """Exit code and complaint of the script."""
    argv = [sys.executable, "-B", str(specs / "make_vectors.py"), *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_the_files_are_as_they_are_made() -> None:
    assert make("--check") == (0, "")


@pytest.mark.slow
def test_an_id_is_not_given_to_another_case(tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    shutil.copytree(ROOT / "specs/making", specs / "making")
    shutil.copy(ROOT / "specs/make_vectors.py", specs)
    shutil.copytree(FOLDER, specs / "vectors")
    path = specs / "vectors/tag.json"
    good = path.read_text()
    other = json.loads(good)
    assert other["tests"][4]["id"] == "tag-size-005"
    other["tests"][4]["input"] = "00"
    del other["tests"][-1]  # one that is new has no id to lose
    path.write_text(json.dumps(other))
    assert make("--check", specs=specs) == (
        1,
        "make_vectors: not as specs/make_vectors.py makes them: tag.json\n",
    )
    code, told = make(specs=specs)
    assert (code, told.split(": ")[-1]) == (1, "tag-size-005\n")
    assert path.read_text() != good
    assert make("--reassign", specs=specs) == (0, "")
    assert path.read_text() == good


def test_nothing_of_ours_is_asked_for_making_them() -> None:
    for path in [ROOT / "specs/make_vectors.py", *(ROOT / "specs/making").glob("*.py")]:
        assert not re.search(r"^\s*(?:from|import) joinproto", path.read_text(), re.M), path


def test_there_is_a_file_for_every_group_and_no_other() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {*GROUPS, "vectors.schema"}


@pytest.mark.parametrize("group", GROUPS)
def test_a_file_is_as_the_schema_says(group: str) -> None:
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    document = book(group)
    assert [error.message for error in Draft202012Validator(schema).iter_errors(document)] == []
    assert document["group"] == group
    assert document["numberOfTests"] == len(document["tests"])


@pytest.mark.parametrize(
    ("group", "changes"),
    [
        ("frame", {"result": "good"}),
        ("frame", {"stage": "tag"}),
        ("frame", {"clause": []}),
        ("frame", {"clause": ["JP-FRM"]}),
        ("frame", {"input": "0"}),
        ("frame", {"more": 1}),
        ("frame", {"value": {"type": "Hello"}}),
        ("frame", {"wire": 3}),
        ("tag", {"tag": "00"}),
        ("dial", {"channel": "door"}),
        ("agent-spec", {"value": {}}),
        ("transcript", {"steps": []}),
        ("transcript", {"admission": "shut"}),
    ],
)
def test_the_schema_refuses(group: str, changes: dict[str, Any]) -> None:
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    document = book(group)
    good = {**document, "tests": document["tests"][:1]}
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "tests": [good["tests"][0] | changes]})


def test_ids_are_unique_and_cases_are_many() -> None:
    ids = [case["id"] for _, case in ALL]
    assert len(set(ids)) == len(ids) >= 500


@pytest.mark.parametrize("group", GROUPS)
def test_every_flag_is_explained_and_used(group: str) -> None:
    used = {flag for case in cases(group) for flag in case["flags"]}
    assert used == book(group)["flags"].keys()


def test_every_flag_that_could_be_explained_is_used() -> None:
    text = (ROOT / "specs/making/flags.py").read_text()
    known = set(re.findall(r'^    "(\w+)": ', text, re.M))
    assert {flag for _, case in ALL for flag in case["flags"]} == known


def test_every_clause_is_one() -> None:
    text = (ROOT / "specs/protocol.md").read_text()
    known = set(re.findall(r"^\*\*(JP-[A-Z]+-\d+)\*\*", text, re.M))
    assert {clause for _, case in ALL for clause in case["clause"]} <= known


def test_every_stage_and_every_message_is_there() -> None:
    stages = {case.get("stage") for _, case in ALL}
    assert {stage.value for stage in Stage} <= stages
    said = {case["value"]["type"] for case in cases("payload") if "value" in case}
    assert said == {"Hello", "Accept", "Reject", "WorldFormed", "RankExited", "Abort"}
    assert {case["wire"] for case in cases("payload")} == WIRES.keys()


# -- the README ---------------------------------------------------------------------------------


def readme(language: str) -> str:
    text = (FOLDER / "README.md").read_text()
    return text.partition(f"```{language}\n")[2].partition("```")[0]


def test_the_case_in_the_readme_is_one() -> None:
    shown = json.loads(readme("json"))
    assert shown in cases("payload")


@pytest.mark.parametrize("strict", [False, True])
def test_the_loop_in_the_readme_finds_what_is_wrong(strict: bool) -> None:
    scope: dict[str, Any] = {}
    exec(readme("python"), scope)

    def decode(wire: int, data: bytes) -> dict[str, str]:
        try:
            decoded = codec.decode_payload(data, wire=wire)
        except DecodeError as error:
            raise ValueError(str(error)) from None
        if strict and decoded.notes:
            raise ValueError("nobody writes this")
        return {"type": type(decoded.message).__name__}

    path = FOLDER / "payload.json"
    assert list(scope["failures"](decode, path)) == []
    of_wire_2 = list(scope["failures"](lambda wire, data: decode(2, data), path))
    assert of_wire_2
    assert all(name.startswith("payload-v4-") for name in of_wire_2)


# -- what published programs say ---------------------------------------------------------------


def published() -> Iterator[tuple[tuple[int, str, bytes], tuple[Any, ...]]]:
    """What published decoders were given, and what they said."""
    for vector in VECTORS:
        result, stage = vector.verdict, vector.stage
        if result == "other-kind":
            result, stage = "invalid", Stage.KIND  # a frame to them, and none of this channel
        elif "lenient-decoder" in vector.flags:
            result = "acceptable"
        elif result == "end-of-stream":
            result = "valid"
        message = None if vector.verdict == "other-kind" else vector.message
        yield (vector.wire, vector.key.hex(), vector.data), (result, stage, message)


def ours_by_input() -> dict[tuple[int, str, bytes], tuple[Any, ...]]:
    found: dict[tuple[int, str, bytes], tuple[Any, ...]] = {}
    for case in cases("frame"):
        said = message_of(case["value"]) if case.get("value") else None
        verdict = (case["result"], case.get("stage"), said)
        key = (case["wire"], case["key"], data_of(case["input"]))
        assert found.setdefault(key, verdict) == verdict, case["id"]
    return found


def test_published_verdicts_on_frames_are_ours_and_none_is_left_out() -> None:
    ours = ours_by_input()
    for given, verdict in published():
        assert ours[given] == verdict, given[2].hex()


def test_published_verdicts_on_specs_are_ours_and_none_is_left_out() -> None:
    ours = {case["text"]: (case["result"], case.get("stage")) for case in cases("agent-spec")}
    tests = json.loads((FOLDER / "published/agentspec.json").read_text())["tests"]
    for one in tests:
        assert ours[one["env"]] == (one["result"], one.get("fault")), one["comment"]


# -- each case, by our code ---------------------------------------------------------------------


@every("dial")
def test_dial(case: Case) -> None:
    for feed in FEEDS:
        end = ControllerConnection(Admission(salt=Salt(bytes(16)), open=True))
        end.start(NOW)
        effects = [
            e for chunk in feed(data_of(case["input"])) for e in end.receive_data(chunk, NOW)
        ]
        if case["result"] == "invalid":
            assert end.channel == ""
            assert effects[0] == fx.CloseLink()
            assert end.data_to_send() == b""
        else:
            assert end.channel == case["channel"]


@every("tag")
def test_tag(case: Case) -> None:
    payload, key = data_of(case["input"]), Salt(bytes.fromhex(case["key"]))
    tag = bytes.fromhex(case["tag"])
    right = case["result"] == "valid"
    assert codec.tag_matches(case["kind"], payload, tag, key) == right
    assert (codec.tag_of(case["kind"], payload, key) == tag) == right


NOTES = {"NonMinimalVarint": Note.NON_MINIMAL_VARINT, "TrailingBytes": Note.TRAILING_BYTES}


@every("payload")
def test_payload(case: Case) -> None:
    data, wire = data_of(case["input"]), case["wire"]
    if case["result"] == "invalid":
        with pytest.raises(DecodeError) as raised:
            codec.decode_payload(data, wire=wire)
        assert raised.value.stage == case["stage"]
        return
    decoded = codec.decode_payload(data, wire=wire)
    assert decoded.message == message_of(case["value"])
    assert set(decoded.notes) == {NOTES[flag] for flag in case["flags"] if flag in NOTES}
    assert bool(decoded.notes) == (case["result"] == "acceptable")
    written = codec.encode_payload(decoded.message, wire=wire)
    assert (written == data) == (case["result"] == "valid")
    assert codec.decode_payload(written, wire=wire).message == decoded.message


def read(case: Case, chunks: Iterable[bytes]) -> Iterator[tuple[codec.Decoded, int]]:
    """The messages of a stream and the bytes that each took, up to its end."""
    framer, key = Framer(wires=frozenset((case["wire"],))), Salt(bytes.fromhex(case["key"]))
    for chunk in chunks:
        framer.feed(chunk)
        while (frame := framer.next_frame()) is not None:
            codec.check_tag(frame.kind, frame.payload, frame.tag, key)
            if frame.kind != JOIN_KIND:
                raise DecodeError(Stage.KIND, "another channel's")
            yield codec.decode_payload(frame.payload, wire=frame.wire), frame.size
    framer.end()


@every("frame")
def test_frame(case: Case) -> None:
    data, wire, key = data_of(case["input"]), case["wire"], Salt(bytes.fromhex(case["key"]))
    for feed in FEEDS:
        if case["result"] == "invalid":
            with pytest.raises(DecodeError) as raised:
                next(read(case, feed(data)))
            assert raised.value.stage == case["stage"]
            continue
        first = next(read(case, feed(data)), None)
        if case["value"] is None:
            assert (first, case["consumed"]) == (None, 0)
            continue
        assert first is not None
        decoded, size = first
        assert (decoded.message, size) == (message_of(case["value"]), case["consumed"])
        assert bool(decoded.notes) == (case["result"] == "acceptable")
        written = codec.encode(decoded.message, key=key, wire=wire)
        assert (written == data[:size]) == (case["result"] == "valid")


@every("stream")
def test_stream(case: Case) -> None:
    for feed in FEEDS:
        said: list[codec.Decoded] = []
        stage = None
        try:
            for decoded, _ in read(case, feed(data_of(case["input"]))):
                said.append(decoded)
        except DecodeError as error:
            stage = error.stage
        assert [decoded.message for decoded in said] == [message_of(v) for v in case["values"]]
        assert stage == case.get("stage")
        odd = any(decoded.notes for decoded in said)
        assert odd == (case["result"] == "acceptable")


@every("agent-spec")
def test_agent_spec(case: Case) -> None:
    if "document" in case:
        assert bytes.fromhex(case["text"].strip()).decode() == case["document"]
    if case["result"] == "invalid":
        with pytest.raises(ConfigError) as raised:
            AgentSpec.from_hex(case["text"])
        assert raised.value.fault == case["stage"]
        return
    spec = AgentSpec.from_hex(case["text"])
    value = case["value"]
    assert {name: getattr(spec, name) for name in ("host", "controller_host", "libtorch")} == {
        name: value[name] for name in ("host", "controller_host", "libtorch")
    }
    assert spec.controller_port == value["controller_port"]
    assert (spec.run_id, spec.data_path) == (value["run_id"], value["data_path"])
    assert spec.gpu_ram_share == value["gpu_ram_share"]
    assert (spec.salt and spec.salt.hex()) == value["salt_hex"]
    assert (spec.dataset_sig and spec.dataset_sig.hex()) == value["dataset_sig_hex"]
    assert (spec.model_sig and spec.model_sig.hex()) == value["model_sig_hex"]
    devices = value["local_devices"]
    assert spec.local_devices == (None if devices is None else tuple(devices))
    assert AgentSpec.from_hex(spec.to_hex()) == spec
