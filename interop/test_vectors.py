"""Every vector of a frame or a payload, by flodl's own decoder; of a spec, by its own agent."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.peers import WIRES, binary, directory
from interop.processes import PATIENCE, Watched, clean_environment
from joinproto.codec import encode_frame, encode_payload
from joinproto.keys import OPEN
from tests.support.cases import Case, cases, data_of, message_of

pytestmark = pytest.mark.interop

BUILD = "interop/build_verdicts.sh"
DIES = "dies"
MOST_KIB = 64 * 1024 * 1024
"""Of memory that may be asked for.  Some systems promise a terabyte that they do not have, and
then the decoder lives."""

STAGES = {
    "ControlFrame magic": "magic",
    "ControlFrame version": "version",
    "unknown MsgKind": "kind",
    "exceeds MAX_CONTROL_PAYLOAD": "length",
    "payload read failed": "truncated",
    "HMAC verification failed": "tag",
}
"""What the decoder's words hold → the stage that they mean."""


@pytest.fixture(scope="module", params=list(WIRES))
def decoder(request: pytest.FixtureRequest) -> tuple[Path, int]:
    """flodl's decoder as a filter, and the wire version that it speaks."""
    path = directory() / f"flodl-verdicts-{request.param}"
    if not path.exists():
        if os.environ.get("JOINPROTO_REQUIRE_PEERS") == "1":
            pytest.fail(f"{path} is not built; run {BUILD}", pytrace=False)
        pytest.skip(f"{path} is not built; run {BUILD}")
    return path, WIRES[request.param]


def said(path: Path, lines: list[str]) -> list[str]:
    """What the decoder says to each line; it is started anew behind one that it dies of."""
    answers: list[str] = []
    while len(answers) < len(lines):
        left = "".join(f"{line}\n" for line in lines[len(answers) :])
        done = subprocess.run(
            ["/bin/sh", "-c", f'ulimit -v {MOST_KIB}; exec "$0"', path],
            input=left,
            capture_output=True,
            text=True,
            env={"RUST_BACKTRACE": "0"},
            timeout=PATIENCE,
        )
        answers += done.stdout.splitlines()
        if len(answers) < len(lines):
            assert done.returncode, done.stderr
            answers.append(DIES)
    return answers


def agrees(case: Case, wire: int, answer: str) -> bool:
    """Whether the decoder and the case say the same."""
    word, _, rest = answer.partition(" ")
    if "PublishedDecoderDies" in case["flags"] or word == DIES:
        return word == DIES and "PublishedDecoderDies" in case["flags"]
    if case.get("stage") == "kind" and "OtherKind" in case["flags"]:
        # To the decoder another channel's frame is as good as any.
        return word in ("taken", "payload")
    if case["result"] == "invalid":
        stage = next((stage for words, stage in STAGES.items() if words in rest), None)
        return case["stage"] == ("payload" if word == "payload" else stage) and word != "taken"
    if case["value"] is None:
        return word == "end"
    _, consumed, payload = rest.split(" ")
    whole = case.get("consumed", int(consumed)) == int(consumed)
    return whole and payload == encode_payload(message_of(case["value"]), wire=wire).hex()


def frame_line(case: Case) -> str:
    return f"{case['key']} {data_of(case['input']).hex()}"


def disagreements(decoder: tuple[Path, int], found: list[Case], lines: list[str]) -> list[str]:
    path, wire = decoder
    answers = said(path, lines)
    return [
        f"{case['id']} ({case['comment']}): {answer[:200]}"
        for case, answer in zip(found, answers, strict=True)
        if not agrees(case, wire, answer)
    ]


def test_frames(decoder: tuple[Path, int]) -> None:
    found = [case for case in cases("frame") if case["wire"] == decoder[1]]
    assert disagreements(decoder, found, [frame_line(case) for case in found]) == []


def test_payloads(decoder: tuple[Path, int]) -> None:
    found = [case for case in cases("payload") if case["wire"] == decoder[1]]
    frames = [encode_frame(data_of(case["input"]), key=OPEN, wire=decoder[1]) for case in found]
    lines = [f"{OPEN.hex()} {frame.hex()}" for frame in frames]
    assert disagreements(decoder, found, lines) == []


# -- specs --------------------------------------------------------------------------------------

SPEC_STAGES = {
    "spec hex-decode": "hex",
    "spec JSON parse": "json",
    "session salt": "salt",
    "_sig": "signature",
    "has no GPUs to offer": "no-devices",
}
TAKEN = ": connect to "
"""What the agent says at its end when it has dialed, and nobody was there."""


def spec_agrees(case: Case, version: str, said: str) -> bool:
    """Whether an agent's last words and the case say the same."""
    if "Since08" in case["flags"] and version == "0.7.0":
        return True  # it knows no such field, and an array that holds one is too long for it
    stage = next((stage for words, stage in SPEC_STAGES.items() if words in said), None)
    if case["result"] == "invalid":
        return bool(stage == case["stage"])
    # Where no devices are named, it depends on the host whether there are any.
    unnamed = case["value"]["local_devices"] is None
    return TAKEN in said or (unnamed and stage == "no-devices")


def test_specs(version: str) -> None:
    found = cases("agent-spec")
    wrong = []
    with ExitStack() as stack:
        # A dial that leads nowhere takes seconds, so they are all made at once.
        agents = [stack.enter_context(agent_with(case["text"], version)) for case in found]
        for case, agent in zip(found, agents, strict=True):
            assert agent.wait_exit() == 1
            said = agent.lines("stderr")[-1]
            if not spec_agrees(case, version, said):
                wrong.append(f"{case['id']} ({case['comment']}): {said[:200]}")
    assert wrong == []


def agent_with(text: str, version: str) -> Watched:
    """A published agent with that text for a spec, which gives up as soon as one can."""
    environment = clean_environment(
        FLODL_INTERNAL_AGENT_JSON=text, FLODL_HOST_NAME="h", FLODL_NET_TIMEOUT_SCALE="0.1"
    )
    return Watched([binary(version)], environment=environment)
