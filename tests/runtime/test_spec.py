"""AgentSpec: the published verdicts, the round trip, and errors that say what to do."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.errors import ConfigError
from joinproto.keys import Salt
from joinproto.runtime.spec import AgentSpec, role_conflict

VARIABLE = "FLODL_INTERNAL_AGENT_JSON"
VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "specs/vectors/published/agentspec.json").read_text()
)
MINIMAL: dict[str, object] = {"host": "h", "controller_host": "c", "controller_port": 9}
SECRET = "5ec7e75ec7e75ec7e75ec7e75ec7e75e"


def spec_of(**fields: object) -> AgentSpec:
    return AgentSpec.from_hex(json.dumps(MINIMAL | fields).encode().hex())


def fault_of(digits: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        AgentSpec.from_hex(digits)
    return caught.value


# -- the published verdicts -------------------------------------------------------------------


def test_all_vectors_are_here() -> None:
    assert len(VECTORS["tests"]) == VECTORS["numberOfTests"] == 45


@pytest.mark.parametrize("vector", VECTORS["tests"], ids=lambda v: f"{v['id']} {v['comment']}")
def test_vector(vector: dict[str, str]) -> None:
    environ = {VARIABLE: vector["env"]}
    if vector["result"] == "valid":
        spec = AgentSpec.from_env(environ)
        assert AgentSpec.from_env(spec.to_env()) == spec
    else:
        with pytest.raises(ConfigError) as caught:
            AgentSpec.from_env(environ)
        assert caught.value.fault == vector["fault"]
        assert "\n" not in str(caught.value)


def test_what_the_vectors_mean() -> None:
    spec = AgentSpec.from_hex(VECTORS["tests"][1]["env"])
    assert spec == AgentSpec(
        host="h",
        controller_host="127.0.0.1",
        controller_port=9,
        salt=Salt(b"\x07" * 16),
        local_devices=(0, 1),
        libtorch="builds/sm61-sm120",
        dataset_sig=b"\xab" * 32,
    )


def test_fields_since_0_8() -> None:
    spec = spec_of(
        run_id="r", data_path="/d", gpu_ram_share=1, model_sig_hex=" " + "01" * 32, wire="new"
    )
    assert (spec.run_id, spec.data_path, spec.gpu_ram_share) == ("r", "/d", 1.0)
    assert spec.model_sig == b"\x01" * 32
    assert spec_of(run_id=None, data_path=None, gpu_ram_share=None, model_sig_hex=None) == spec_of()


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("run_id", 1, "json"),
        ("data_path", ["/d"], "json"),
        ("gpu_ram_share", "0.5", "json"),
        ("gpu_ram_share", True, "json"),
        ("model_sig_hex", 1, "json"),
        ("model_sig_hex", "01", "signature"),
        ("model_sig_hex", "zz" * 32, "signature"),
        ("dataset_sig_hex", "", "signature"),
        ("dataset_sig_hex", "01 " * 32, "signature"),
    ],
)
def test_faults_of_single_fields(field: str, value: object, fault: str) -> None:
    error = fault_of(json.dumps(MINIMAL | {field: value}).encode().hex())
    assert error.fault == fault
    assert str(error).startswith(VARIABLE)
    assert field in str(error)


def test_an_array_holds_the_fields_in_published_order() -> None:
    salt, signature = "07" * 16, "ab" * 32
    full = ["h", "c", 9, salt, [1], "cu128", signature, "r", "/d", 0.5, signature]
    spec = AgentSpec.from_hex(json.dumps(full).encode().hex())
    assert (spec.run_id, spec.data_path, spec.gpu_ram_share) == ("r", "/d", 0.5)
    assert AgentSpec.from_hex(json.dumps(full[:3]).encode().hex()) == spec_of()
    assert fault_of(json.dumps(full[:2]).encode().hex()).fault == "json"
    assert fault_of(json.dumps([*full, 1]).encode().hex()).fault == "json"


def test_the_first_fault_in_published_order_is_told() -> None:
    bad = {"salt_hex": "00", "local_devices": [], "dataset_sig_hex": "00"}
    steps = ["json", "no-devices", "salt", "signature"]
    cures: list[dict[str, object]] = [
        {"host": "h"},
        {"local_devices": [0]},
        {"salt_hex": "07" * 16},
    ]
    document = MINIMAL | bad | {"host": 1}
    for step, cure in zip(steps, [*cures, {}], strict=True):
        assert fault_of(json.dumps(document).encode().hex()).fault == step
        document |= cure


def test_hex_with_white_space_inside_is_refused() -> None:
    digits = json.dumps(MINIMAL).encode().hex(" ")
    assert fault_of(digits).fault == "hex"


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_refused_in_one_line(raw: bytes) -> None:
    # None of these is a spec by chance: that takes three fields with their names.
    error = fault_of(raw.hex())
    assert error.fault == "json"
    assert "\n" not in str(error)


@given(st.text())
def test_any_text_is_refused_in_one_line(text: str) -> None:
    error = fault_of(text)
    assert error.fault in {"hex", "json"}
    assert "\n" not in str(error)


# -- made in Python ---------------------------------------------------------------------------

texts = st.text()
signatures = st.none() | st.binary(min_size=32, max_size=32)
specs = st.builds(
    AgentSpec,
    host=texts,
    controller_host=texts,
    controller_port=st.integers(0, 65_535),
    salt=st.none() | st.binary(min_size=16, max_size=16).map(Salt),
    local_devices=st.none() | st.lists(st.integers(0, 255), min_size=1).map(tuple),
    libtorch=texts,
    dataset_sig=signatures,
    run_id=st.none() | texts,
    data_path=st.none() | texts,
    gpu_ram_share=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    model_sig=signatures,
)


@given(specs)
def test_round_trip(spec: AgentSpec) -> None:
    assert AgentSpec.from_env(spec.to_env()) == spec


def test_what_is_written_is_what_is_published() -> None:
    spec = AgentSpec(
        host="h",
        controller_host="c",
        controller_port=9,
        salt=Salt(b"\x07" * 16),
        local_devices=(0, 1),
        dataset_sig=b"\xab" * 32,
        gpu_ram_share=0.5,
    )
    (name, digits), *rest = spec.to_env().items()
    assert (name, rest) == (VARIABLE, [])
    assert json.loads(bytes.fromhex(digits)) == MINIMAL | {
        "salt_hex": "07" * 16,
        "local_devices": [0, 1],
        "libtorch": "",
        "dataset_sig_hex": "ab" * 32,
        "gpu_ram_share": 0.5,
    }


@pytest.mark.parametrize(
    ("change", "fault", "why"),
    [
        ({"controller_port": 70_000}, "option", "controller_port must be a whole number"),
        ({"controller_port": True}, "option", "controller_port must be a whole number"),
        ({"host": "\udcff"}, "option", "host must be a string of valid UTF-8"),
        ({"data_path": "\udcff"}, "option", "data_path must be a string of valid UTF-8"),
        (
            {"local_devices": (0, 256)},
            "option",
            "local_devices must be an array, each entry a whole",
        ),
        ({"local_devices": ()}, "no-devices", "host 'h' offers no devices"),
        ({"gpu_ram_share": float("nan")}, "option", "gpu_ram_share must be a finite number"),
        ({"dataset_sig": b"\0"}, "signature", "dataset_sig must be 32 bytes"),
        ({"model_sig": b"\0" * 33}, "signature", "model_sig must be 32 bytes"),
    ],
)
def test_a_spec_that_cannot_be_made(change: dict[str, Any], fault: str, why: str) -> None:
    arguments: dict[str, Any] = MINIMAL | change
    with pytest.raises(ConfigError, match=f"^{why}") as caught:
        AgentSpec(**arguments)
    assert caught.value.fault == fault


def test_a_variable_that_is_not_set() -> None:
    with pytest.raises(ConfigError, match=f"^{VARIABLE} is not set$"):
        AgentSpec.from_env({})


# -- the salt ---------------------------------------------------------------------------------


def test_the_salt_does_not_show() -> None:
    spec = spec_of(salt_hex=SECRET)
    assert spec.salt == Salt.from_hex(SECRET)
    shown = f"{spec} {spec!r}"
    assert SECRET not in shown
    assert str(bytes.fromhex(SECRET)) not in shown


@pytest.mark.parametrize(
    "document",
    [
        json.dumps(MINIMAL | {"salt_hex": SECRET + "00"}),
        json.dumps(MINIMAL | {"salt_hex": [SECRET]}),
        json.dumps(MINIMAL | {"salt_hex": SECRET, "host": 1}),
        json.dumps(MINIMAL | {"salt_hex": SECRET}) + "}",
        json.dumps(MINIMAL | {"salt_hex": SECRET, SECRET: 1}).replace('"c"', '"\\x"'),
    ],
)
def test_no_error_repeats_the_salt(document: str) -> None:
    error = fault_of(document.encode().hex())
    told = "".join(traceback.format_exception(error))
    assert SECRET not in told
    assert document.encode().hex() not in told


# -- roles ------------------------------------------------------------------------------------


def test_the_agents_own_variables_are_no_conflict() -> None:
    role_conflict({VARIABLE: "7b7d", "JOINPROTO_SALT": SECRET, "HOME": "/"})


@pytest.mark.parametrize("role", ["RELAY_JSON", "FULL_CLUSTER_JSON", "CLUSTER_JSON", "LOCAL_RANK"])
@pytest.mark.parametrize("value", ["", "7b7d"])
def test_another_role_is_a_conflict(role: str, value: str) -> None:
    name = f"FLODL_INTERNAL_{role}"
    with pytest.raises(ConfigError, match=f"^{name} is set") as caught:
        role_conflict({VARIABLE: "7b7d", name: value})
    assert caught.value.fault == "role"
