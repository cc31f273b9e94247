"""errors: whose fault each one is, what it tells, and the exit code it leads to."""

from __future__ import annotations

import inspect

import pytest

from joinproto import errors
from joinproto.errors import (
    Aborted,
    ConfigError,
    DecodeError,
    HostError,
    IllegalInput,
    InvalidMessage,
    JoinprotoError,
    LocalError,
    ProtocolViolation,
    Rejected,
    RemoteError,
    Stage,
    Stopped,
)

EXIT_CODES = {
    "Aborted": 1,
    "ArtifactError": 1,
    "CommandNotFound": 2,
    "ConfigError": 2,
    "DeadlinePassed": 1,
    "DecodeError": 1,
    "HelperLost": 1,
    "IllegalInput": 2,
    "InvalidMessage": 2,
    "LinkLost": 1,
    "ProtocolViolation": 1,
    "Rejected": 3,
    "RelayDied": 1,
    "SpawnFailed": 1,
    "TableError": 2,
    "TrustMismatch": 1,
    "Unkillable": 1,
    "Unreachable": 1,
}
"""What an agent exits with when one of these ends it; 2 where a restart won't help, 3 rejected."""

CLASSES = {
    name: cls
    for name, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, JoinprotoError)
}
SIDES = (LocalError, RemoteError, HostError)


def test_every_error_has_its_exit_code() -> None:
    codes = {name: cls.exit_code for name, cls in CLASSES.items()}
    for side in (JoinprotoError, *SIDES, Stopped):
        del codes[side.__name__]  # three kinds of errors, their root, and one that has a number
    assert codes == EXIT_CODES


@pytest.mark.parametrize("name", EXIT_CODES)
def test_every_error_is_on_one_side(name: str) -> None:
    assert sum(issubclass(CLASSES[name], side) for side in SIDES) == 1


def test_wrong_values_are_value_errors_too() -> None:
    assert issubclass(InvalidMessage, ValueError)
    assert issubclass(ConfigError, ValueError)


def test_the_stages_stand_in_the_order_of_reading() -> None:
    order = ["magic", "version", "kind", "length", "truncated", "tag", "payload"]
    assert [str(stage) for stage in Stage] == order


def test_a_decode_error_names_stage_field_and_offset() -> None:
    error = DecodeError(Stage.PAYLOAD, "no UTF-8", field="Hello.gpus[1]", offset=40)
    assert str(error) == "payload: no UTF-8 in Hello.gpus[1] at byte 40 of the payload"
    assert (error.stage, error.detail) == (Stage.PAYLOAD, "no UTF-8")
    assert (error.field, error.offset) == ("Hello.gpus[1]", 40)


def test_a_decode_error_at_the_first_byte_says_so() -> None:
    error = DecodeError(Stage.PAYLOAD, "empty", field="message", offset=0)
    assert str(error) == "payload: empty in message at byte 0 of the payload"


def test_a_decode_error_of_a_header_has_no_field() -> None:
    error = DecodeError(Stage.MAGIC, "not a frame")
    assert str(error) == "magic: not a frame"
    assert (error.field, error.offset) == ("", None)


def test_an_illegal_input_says_what_cannot_happen_where() -> None:
    error = IllegalInput("agent", "Dialing", "Flushed")
    assert str(error) == "agent machine: Flushed cannot happen in state Dialing"
    assert (error.machine, error.state, error.given) == ("agent", "Dialing", "Flushed")


def test_a_config_error_names_the_step_that_refused_it() -> None:
    assert ConfigError("no").fault == "option"
    error = ConfigError("the salt is empty", fault="salt")
    assert (str(error), error.fault) == ("the salt is empty", "salt")


def test_a_violation_names_both_messages() -> None:
    error = ProtocolViolation("Accept or Reject", "WorldFormed")
    assert str(error) == "expected Accept or Reject, got WorldFormed"
    assert (error.expected, error.got) == ("Accept or Reject", "WorldFormed")


def test_a_rejection_shows_the_reason_word_for_word() -> None:
    error = Rejected("dataset  signature\tdiffers")
    assert str(error) == "join rejected by the controller: dataset  signature\tdiffers"
    assert error.reason == "dataset  signature\tdiffers"


@pytest.mark.parametrize(
    ("formed", "text"),
    [(False, "run aborted before the world formed: why"), (True, "run aborted: why")],
)
def test_an_abort_says_whether_the_world_had_formed(formed: bool, text: str) -> None:
    error = Aborted("why", formed=formed)
    assert str(error) == text
    assert (error.reason, error.formed) == ("why", formed)


def test_a_stop_carries_its_signal() -> None:
    error = Stopped("SIGTERM", 15)
    assert str(error) == "stopped by SIGTERM"
    assert (error.signal_name, error.number) == ("SIGTERM", 15)
