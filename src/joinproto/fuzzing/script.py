"""A finding as a Python script that needs the standard library alone."""

from __future__ import annotations

import pprint
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import resources
from typing import Any, Final

from joinproto.conformance import compose
from joinproto.conformance.compose import Member
from joinproto.conformance.world import Keys
from joinproto.errors import InvalidMessage
from joinproto.fuzzing.acting import DIAL, LOOK, PAST
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.sequence import Sequence, Step, verb
from joinproto.fuzzing.shadow import foresee
from joinproto.fuzzing.standalone import MARK
from joinproto.keys import OPEN, Salt
from joinproto.limits import whole_seconds

PLACE: Final = "CASE: dict[str, Any] = {}"
"""Where the case goes in the script."""

KEPT: Final = (
    *("tag", "kind", "magic", "length", "cut", "behind"),
    *("chunk", "pause"),
)
"""Words of a step that mean in the script what they mean here."""

WITH_JOIN_KEY: Final = ("Hello", "Accept", "Reject")

ANSWER: Final = 0.3
"""Seconds that the script waits for what should come."""


def script_of(finding: Finding) -> str:
    """The script.

    Every payload is in it as bytes.  Tags are not: they are made with the salt of the run in which
    the script is used, and of the run in which the fault was found it holds no salt.
    """
    template = resources.files("joinproto.fuzzing").joinpath("standalone.py").read_text("utf-8")
    before, _, after = template.partition(PLACE)
    shown = pprint.pformat(case_of(finding), width=96, sort_dicts=False)
    return f"{before}CASE: dict[str, Any] = {shown}{after}"


def case_of(finding: Finding) -> dict[str, Any]:
    """All that the script knows of the case."""
    sequence = finding.sequence
    keys = _keys(sequence)
    foreseen = foresee(sequence, keys, finding.scale)
    messages = {
        name: [type(each).__name__ for each in heard.messages]
        for name, heard in foreseen.heard.items()
    }
    due = [sum(each.values()) for each in foreseen.due]
    steps = [
        {**step, "due": ANSWER if later > now else 0.0}
        for step, now, later in zip(_steps(sequence, keys, finding), due[:-1], due[1:], strict=True)
    ]
    return {
        "finding": finding.id,
        "what": finding.summary,
        "oracle": finding.strike.oracle,
        "role": sequence.role,
        "wire": sequence.wire,
        "admission": sequence.admission,
        "devices": sequence.devices,
        "listening": sequence.listening,
        "scale": finding.scale,
        "repeats": finding.repeats,
        "ends": foreseen.exit is not None,
        "exit_expected": foreseen.exit,
        "expected": messages,
        "honest": _said(sequence, {"say": "Hello", "on": "honest"}, keys),
        "steps": steps,
    }


def _keys(sequence: Sequence) -> Keys:
    mark = Salt.from_hex(MARK)
    is_open = sequence.admission == "open"
    return Keys(join=OPEN if is_open else mark, session=mark, other=Salt(bytes(16)), open=is_open)


def _steps(sequence: Sequence, keys: Keys, finding: Finding) -> Iterator[Step]:
    for step in sequence.steps:
        word = verb(step)
        if word in ("say", "frame"):
            yield _said(sequence, step, keys)
        elif word == "wait":
            yield _waits(step, finding.scale)
        else:
            yield {"do": word, **_OTHERS[word](step), **_kept(step)}


def _waits(step: Step, scale: float) -> Step:
    seconds = float(step["wait"])
    scaled = whole_seconds(seconds, scale) + PAST
    return {"do": "wait", "seconds": scaled if step.get("scaled") else seconds}


def _acts(step: Step) -> Step:
    acts = step["do"] if isinstance(step["do"], list) else [step["do"]]
    return {"name": str(step["rank"]), "acts": acts}


_OTHERS: Final[Mapping[str, Callable[[Step], Step]]] = {
    "dial": lambda step: {"on": step["dial"], "magic": step.get("channel", "e3170df1")},
    "accept": lambda step: {"on": step["accept"], "within": float(step.get("within", DIAL))},
    "send": lambda step: {
        "on": step.get("on", "c"),
        "bytes": compose.bytes_of(step["send"]).hex(),
    },
    "half_close": lambda step: {"on": step["half_close"]},
    "close": lambda step: {"on": step["close"]},
    "reset": lambda step: {"on": step["reset"]},
    "look": lambda step: {"on": step["look"], "within": float(step.get("within", LOOK))},
    "signal": lambda step: {"name": step["signal"]},
    "rank": _acts,
    "listen": lambda step: {},
}


def _said(sequence: Sequence, step: Step, keys: Keys) -> Step:
    on = str(step.get("on", "c"))
    wire = int(step.get("speak", sequence.wire))
    if "say" in step:
        payload = _payload(sequence, step, keys, wire)
        if payload is None:  # no such message can be made, and nothing was sent
            return {"do": "wait", "seconds": 0.0}
        key = "join" if step["say"] in WITH_JOIN_KEY else "session"
    else:
        payload, key = compose.bytes_of(step["frame"]), "session"
    return {
        "do": "frame",
        "on": on,
        "key": step.get("key", key),
        "wire": int(step.get("wire", wire)),
        "payload": payload.hex(),
        **_kept(step),
    }


def _payload(sequence: Sequence, step: Step, keys: Keys, wire: int) -> bytes | None:
    on = str(step.get("on", "c"))
    devices = tuple(range(sequence.devices))
    member = Member(host=f"{on}-0", devices=devices, ranks=devices)
    if sequence.role == "agent":
        member = replace(member, host="target")
    known = {"$session": keys.session.hex(), "$other": keys.other.hex()}
    given = {
        name: known.get(value, value) if isinstance(value, str) else value
        for name, value in step.get("with", {}).items()
    }
    try:
        message = compose.message_of(step["say"], given, member, keys, ("127.0.0.1", 1))
    except InvalidMessage:
        return None
    return compose.payload_of(message, wire)


def _kept(step: Step) -> Step:
    return {name: step[name] for name in KEPT if name in step}
