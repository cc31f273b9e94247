"""What makers of artifacts share, and templates: what is refused, and what hosts get."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.errors import ConfigError
from joinproto.keys import Salt
from joinproto.limits import MAX_PAYLOAD_BYTES
from joinproto.runtime.artifacts import build_envelope, build_relay_spec
from joinproto.runtime.custom_artifacts import (
    TemplateMaker,
    check_size,
    read_template,
)
from joinproto.runtime.makers import HostPart, Made, World

DIGITS = "00112233445566778899aabbccddeeff"
ENVELOPE = """{
  "controller": {"host": "$controller_host", "port": $controller_port},
  "world_size": $world_size, "num_workers": $num_hosts,
  "worker": {"host": "$host", "ranks": $ranks, "local_devices": ${local_devices}},
  "salt": "$salt_hex", "labels": $gpus, "price": "$$5",
  "text": "$ranks_csv/$local_devices_csv/$libtorch/$group_rank/$peer_host",
  "master": "$master_addr:$master_port"
}
"""
RELAY = """{"host": "$host", "controller_host": "$controller_host",
"controller_port": $controller_port, "ranks": $ranks, "salt_hex": "$salt_hex",
"world_size": $world_size, "data_channel": false}"""
PLAIN = "HOST=$host"


def part(host: str = "node-a", **fields: Any) -> HostPart:
    usual: dict[str, Any] = {
        "host": host,
        "ranks": (2, 3),
        "local_devices": (4, 6),
        "gpus": ('NVIDIA "X"', "cuda:6"),
        "libtorch": "2.9",
        "group_rank": 1,
        "wire": 4,
        "controller_host": "ctl.example",
        "controller_port": 9000,
        "peer_host": "10.0.0.7",
    }
    return HostPart(**{**usual, **fields})


def world(*hosts: HostPart, master: tuple[str, int] | None = ("10.0.0.5", 29500)) -> World:
    size = sum(len(each.ranks) for each in hosts)
    salt = Salt.from_hex(DIGITS)
    return World(world_size=size, num_hosts=len(hosts), hosts=hosts, salt=salt, master=master)


def make(maker: TemplateMaker, given: World) -> Made | str:
    answers: list[Made | str] = []
    maker.make(given, answers.append)
    (answer,) = answers
    maker.cancel()
    return answer


def made(maker: TemplateMaker, given: World) -> Mapping[str, tuple[str, str | None]]:
    answer = make(maker, given)
    assert not isinstance(answer, str), answer
    return answer


def unhex(digits: str | None) -> Any:
    assert digits is not None
    return json.loads(bytes.fromhex(digits))


# -- what hosts get ---------------------------------------------------------------------------


def test_a_template_filled_in() -> None:
    answer = made(TemplateMaker(ENVELOPE, RELAY), world(part()))
    assert answer.keys() == {"node-a"}
    envelope, relay = answer["node-a"]
    assert unhex(envelope) == {
        "controller": {"host": "ctl.example", "port": 9000},
        "world_size": 2,
        "num_workers": 1,
        "worker": {"host": "node-a", "ranks": [2, 3], "local_devices": [4, 6]},
        "salt": DIGITS,
        "labels": ['NVIDIA "X"', "cuda:6"],
        "price": "$5",
        "text": "2,3/4,6/2.9/1/10.0.0.7",
        "master": "10.0.0.5:29500",
    }
    assert unhex(relay)["controller_port"] == 9000


def test_every_host_gets_its_own() -> None:
    answer = made(TemplateMaker(ENVELOPE), world(part("a", ranks=(0, 1)), part("b")))
    assert [unhex(e)["worker"]["ranks"] for e, _ in answer.values()] == [[0, 1], [2, 3]]
    assert [relay for _, relay in answer.values()] == [None, None]


def test_the_templates_of_what_is_handed_out_by_itself() -> None:
    one = part("a", ranks=(0, 1))
    builtin = build_envelope(
        controller_host=one.controller_host,
        controller_port=one.controller_port,
        world_size=2,
        num_workers=1,
        host=one.host,
        ranks=one.ranks,
        local_devices=one.local_devices,
        salt=Salt.from_hex(DIGITS),
    )
    text = """{"controller": {"host": "$controller_host", "port": $controller_port},
    "world_size": $world_size, "num_workers": $num_hosts, "worker": {"host": "$host",
    "ranks": $ranks, "local_devices": $local_devices, "nccl_socket_ifname": "", "path": ""},
    "salt": "$salt_hex"}"""
    relay = build_relay_spec(
        controller_host=one.controller_host,
        controller_port=one.controller_port,
        world_size=2,
        host=one.host,
        ranks=one.ranks,
        salt=Salt.from_hex(DIGITS),
    )
    envelope, spec = made(TemplateMaker(text, RELAY), world(one))["a"]
    assert unhex(envelope) == unhex(builtin)
    assert unhex(spec) == {k: v for k, v in unhex(relay).items() if k != "frame_ceiling_bytes"}


@given(host=st.text(), gpu=st.text())
def test_names_stay_what_they_are(host: str, gpu: str) -> None:
    answer = made(TemplateMaker(ENVELOPE), world(part(host, gpus=(gpu, gpu))))
    envelope = unhex(answer[host][0])
    assert (envelope["worker"]["host"], envelope["labels"]) == (host, [gpu, gpu])


def test_text_that_is_no_json_where_only_wire_2_is_spoken() -> None:
    answer = made(TemplateMaker(PLAIN, wires=(2,)), world(part('a "b"', wire=2)))
    assert bytes.fromhex(answer['a "b"'][0]) == b'HOST=a "b"'


def test_json_of_any_shape_where_only_wire_2_is_spoken() -> None:
    answer = made(TemplateMaker('["$host"]', wires=(2,)), world(part('"', wire=2)))
    assert unhex(answer['"'][0]) == ['"']


def test_a_name_that_would_begin_a_line_of_its_own_in_text() -> None:
    told = make(TemplateMaker(PLAIN, wires=(2,)), world(part("a\nPATH=/x", wire=2)))
    assert told == (
        "the envelope template: host 'a\\nPATH=/x' holds control characters, which text cannot "
        "carry safely"
    )


def test_rank_0_that_cannot_be_reached() -> None:
    told = make(TemplateMaker(ENVELOPE), world(part(), master=None))
    assert told == "the envelope template: the address of rank 0's host is not known"
    without = ENVELOPE.replace("$master_addr:$master_port", "")
    assert made(TemplateMaker(without), world(part(), master=None))


def test_json_that_only_the_sample_fits() -> None:
    text = ENVELOPE.replace("$world_size,", "$group_rank$world_size,").replace('"$$5"', "1")
    with pytest.raises(ConfigError, match="is not JSON once it is filled in"):
        TemplateMaker(text)
    text = ENVELOPE.replace('"$$5"', "1$libtorch")
    told = make(TemplateMaker(text), world(part(libtorch="x")))
    assert told == "the envelope template is not JSON for host 'node-a': " + (
        "line 5 column 95: Expecting ',' delimiter"
    )


def test_artifacts_that_fit_into_no_frame() -> None:
    check_size("a", "00" * (MAX_PAYLOAD_BYTES // 4), "00" * (MAX_PAYLOAD_BYTES // 8))
    with pytest.raises(ValueError, match="the artifacts of host 'a' do not fit into a frame"):
        check_size("a", "00" * (MAX_PAYLOAD_BYTES // 4), "00" * (MAX_PAYLOAD_BYTES // 4))
    big = ENVELOPE.replace("$$5", "x" * (MAX_PAYLOAD_BYTES // 2))
    assert "do not fit" in str(make(TemplateMaker(big), world(part())))


# -- what is refused at the start -------------------------------------------------------------

REFUSED: dict[str, tuple[str, str | None, str]] = {
    "an unknown name": (
        ENVELOPE.replace("$world_size", "$worldsize"),
        None,
        "the envelope template, line 3: there is no worldsize; there are host, libtorch, ",
    ),
    "a lone dollar": ('{\n"a": "5 $"}', None, "line 2: a $ that begins no name; write $$"),
    "no JSON": (PLAIN, None, "is not JSON once it is filled in (line 1 column 1: Expecting value)"),
    "deep": ("[" * 100_000, None, "it cannot be read"),
    "no controller": ("{}", None, "agents of wire 4 could not use it: .* has no controller object"),
    "an array": ("[]", None, "has no controller object"),
    "a relay spec without a port": (
        ENVELOPE,
        RELAY.replace('"controller_port"', '"controllerport"'),
        "the relay template: agents of wire 4 could not use it: .* controller_port is missing",
    ),
    "a relay spec with an unknown name": (ENVELOPE, "$x", "the relay template, line 1: there is"),
}


@pytest.mark.parametrize(("text", "relay", "told"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_at_the_start(text: str, relay: str | None, told: str) -> None:
    pattern = ".*".join(map(re.escape, told.split(".*")))
    with pytest.raises(ConfigError, match=pattern):
        TemplateMaker(text, relay)


# -- files ------------------------------------------------------------------------------------


def test_a_templates_file(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("é", encoding="utf-8")
    assert read_template("--x", str(tmp_path / "t")) == "é"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("missing", "No such file or directory"),
        (".", "Is a directory"),
        ("pipe", "it is no plain file"),
        ("latin", "it is not UTF-8 at byte 1"),
        ("long", "it is longer than 1048576 bytes"),
        ("a\0b", "null byte"),
    ],
)
def test_a_file_that_is_no_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("latin").write_bytes(b"a\xe9")
    Path("long").write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(ConfigError, match=f"--x {re.escape(name)}: .*{told}"):
        read_template("--x", name)
