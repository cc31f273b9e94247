"""What cases begin with: the test vectors, put into the form that each target takes.

The streams and texts of the vectors are cases as they are.  Their transcripts become scripts: what
the other end says arrives, and what the end under test says becomes the act that has it say so.
What the vectors know nothing of, HTTP and the output of ranks, is written down here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

from fuzz.table import LONGEST, TARGETS
from joinproto.fuzzing.pieces import (
    BYTES,
    FRAME,
    SESSION,
    Step,
    Unit,
    signed,
    stream_of,
    units,
    write_script,
)
from joinproto.grammar import JOIN_MAGIC
from joinproto.keys import OPEN
from joinproto.limits import HEADER_BYTES
from tests.support.cases import Case, cases, data_of

SHARED: Final = {"open": 0, "pre-shared": 1}
"""The settings of a script, by admission."""

STRANGER: Final = 2
"""Those of one in which the other end does not know the salt."""

OUTPUT: Final = (b"a line\n", b"half a line", b"50 %\r60 %\r", b"\n\n", b"\x1b[1m\xff\n", bytes(9))
TEMPLATES: Final = (
    b"[{host}:{rank:>3}] ",
    b"{stream}{device}{local_rank}",
    b"{rank!r}",
    b"{",
    b"\n",
)

HTTP: Final = (
    *(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in (b"/", b"/state.json")),
    *(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in (b"/healthz", b"/metrics")),
    *(
        b"GET %s HTTP/1.0\r\n\r\n" % path
        for path in (b"/events", b"/page.css", b"/none", b"/?a=%41")
    ),
    b"GET / HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n",
    b"GET /events HTTP/1.1\r\nHost: ::1\r\nAuthorization: Bearer token-of-the-controller\r\n\r\n",
    b"GET /metrics?token=token-of-the-controller HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD /state.json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /start?token=token-of-the-controller HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /start HTTP/1.1\r\nHost: localhost\r\nOrigin: http://b\r\nContent-Length: 0\r\n\r\n",
    b"POST /start HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    b"POST /start HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/3.0\r\nHost: a\r\n\r\n",
    b"DELE\xff / HTTP/1.1\nHost: \x00\n\n",
)
"""Requests, good and bad."""


def seeds(name: str) -> list[bytes]:
    """All cases that a target could begin with, each once and short enough, in no special order."""
    return [case for case in dict.fromkeys(_MAKERS[name]()) if len(case) <= LONGEST]


# -- streams and texts ------------------------------------------------------------------------


def _framing() -> Iterator[bytes]:
    for group in ("dial", "frame", "stream"):
        yield from (data_of(case["input"]) for case in cases(group))


def _codec(wire: int) -> Iterator[bytes]:
    for group in ("frame", "stream"):
        for case in cases(group):
            if case["wire"] == wire:
                yield _opened(data_of(case["input"]))
    for case in cases("payload"):
        if case["wire"] == wire:
            yield stream_of([signed(data_of(case["input"]), OPEN.raw, wire)])


def _opened(stream: bytes) -> bytes:
    """A stream with the frames that were tagged with the session salt tagged with the zero key."""

    def opened(unit: Unit) -> Unit:
        header, body = unit
        if not header:
            return unit
        wire, kind = header[4], int.from_bytes(header[16:20], "little")
        known = stream_of([signed(body, SESSION.raw, wire, kind)]) == header + body
        return signed(body, OPEN.raw, wire, kind) if known else unit

    return stream_of([opened(unit) for unit in units(stream)])


def _spec() -> Iterator[bytes]:
    for case in cases("agent-spec"):
        text = case["text"]
        if isinstance(text, str):
            yield b"\x01" + text.encode(errors="surrogatepass")
            if "document" in case and isinstance(case["document"], str):
                yield b"\x00" + case["document"].encode()


# -- scripts ----------------------------------------------------------------------------------


def _acts(module: str) -> dict[str, int]:
    """The ops of a target's acts, by name."""
    acts: tuple[Callable[..., None], ...] = import_module(f"fuzz.targets.{module}").ACTS
    return {act.__name__: op for op, act in enumerate(acts, 2)}


def _connections() -> Iterator[tuple[Case, list[dict[str, Any]]]]:
    """Each connection of each transcript: the case, and its steps."""
    for case in cases("transcript"):
        for number in range(len(case["connections"])):
            yield case, [step for step in case["steps"] if step["connection"] == number]


def _said(step: dict[str, Any]) -> str:
    """The message of a step; empty: it has none."""
    return str((step.get("value") or {}).get("type", ""))


def _agent() -> Iterator[bytes]:
    ops = _acts("agent")
    for case, steps in _connections():
        wire = next((data_of(s["input"])[8] for s in steps if "input" in s), 2)
        script = [Step(ops["connected"]), Step(ops["flushed"])]
        for step in steps:
            script += _as_agent(step, ops)
        script.append(Step(ops["pass_time"], 2))
        for trust in (SHARED[case["admission"]], STRANGER):
            yield write_script(trust | (8 if wire == 4 else 4), script)
    for act in ("connect_failed", "stop", "pass_time", "eof", "broken"):
        yield write_script(0, [Step(ops[act])])
        yield write_script(16, [Step(ops["connected"]), Step(ops[act]), Step(ops["pass_time"])])


def _as_agent(step: dict[str, Any], ops: dict[str, int]) -> list[Step]:
    if step["from"] == "controller":
        if "input" not in step:
            return [Step(ops["eof"])]
        arrives = [Step(BYTES, data=data_of(step["input"]))]
        return arrives + [Step(ops["started"])] * (4 if _said(step) == "WorldFormed" else 0)
    if _said(step) == "RankExited":
        code = step["value"]["code"] + 64 & 0xFF
        return [Step(ops["exited"], code), Step(ops["output_ended"]), Step(ops["flushed"])]
    return []


def _controller() -> Iterator[bytes]:
    ops = _acts("controller")
    for case, steps in _connections():
        script: list[Step] = []
        for step in steps:
            script += _as_controller(step, ops)
        yield write_script(SHARED[case["admission"]], script)
        yield write_script(STRANGER, script)
    for case in cases("dial"):
        yield write_script(0, [Step(BYTES, data=data_of(case["input"]))])


def _as_controller(step: dict[str, Any], ops: dict[str, int]) -> list[Step]:
    if step["from"] == "agent":
        data = [Step(BYTES, data=data_of(step["input"]))] if "input" in step else []
        return data or [Step(ops["eof"])]
    match _said(step):
        case "Accept":
            ranks = step["value"]["ranks"]
            return [
                Step(ops["admit"], ranks[0] % 8 | min(3, len(ranks)) << 3),
                Step(ops["flushed"]),
            ]
        case "WorldFormed":
            return [Step(ops["form"]), Step(ops["flushed"])]
        case "Reject":
            return [Step(ops["refuse"]), Step(ops["flushed"])]
        case "Abort":
            return [Step(ops["abort"]), Step(ops["flushed"]), Step(ops["pass_time"])]
    return []


def _pair() -> Iterator[bytes]:
    ops = _acts("pair")
    for case in cases("transcript"):
        hosts = len(case["connections"])
        script = [Step(ops["comes"], 3 * host) for host in range(hosts)]
        for step in case["steps"]:
            script += _as_pair(step, ops)
        script += [Step(ops["exits"], 128)] * hosts + [Step(ops["pass_time"], 1)]
        yield write_script(SHARED[case["admission"]] | hosts - 1 << 3, script)
    for behaviour in range(7):
        come = Step(ops["comes"], 36 * behaviour)
        for act in ("pass_time", "exits", "stops", "gives_up", "ends"):
            yield write_script(2, [come, Step(ops["pass_time"], 1), Step(ops[act], 1)])
    yield from (
        write_script(0, [Step(BYTES, data=data_of(case["input"])), Step(ops["pass_time"], 3)])
        for case in cases("dial")
    )


def _as_pair(step: dict[str, Any], ops: dict[str, int]) -> list[Step]:
    """What the vectors have an attacker say; the two ends say the rest by themselves."""
    if "stage" not in step or "input" not in step:
        return [Step(ops["pass_time"])]
    end = 2 * step["connection"] + (step["from"] == "agent")
    stream = data_of(step["input"])
    payload = stream.removeprefix(JOIN_MAGIC)[HEADER_BYTES:]
    arrives = Step(FRAME, data=payload) if step["stage"] == "state" else Step(BYTES, data=stream)
    return [Step(ops["choose"], end), arrives]


def _forwarder() -> Iterator[bytes]:
    ops = _acts("forwarder")
    for settings in range(3):
        for first in OUTPUT:
            steps = [Step(BYTES, data=first), Step(ops["turn"]), Step(ops["choose"], 2)]
            steps += [Step(BYTES, data=OUTPUT[settings]), Step(ops["turn"]), Step(ops["read"], 1)]
            yield write_script(settings, steps)
            yield write_script(settings, [*steps, Step(ops["pass_time"], 2), *steps[:2]])
            yield write_script(settings, [*steps[:1], Step(ops["close_one"]), *steps[1:]])
    for template in TEMPLATES:
        yield write_script(0, [Step(BYTES, data=template), Step(ops["template_of"])])


def _http() -> Iterator[bytes]:
    ops = _acts("http")
    ends = [[Step(ops[act], 1)] for act in ("eof", "broken", "pass_time", "finish")]
    for settings in range(8):
        for request in HTTP:
            steps = [Step(BYTES, data=request[:4]), Step(BYTES, data=request[4:])]
            yield write_script(settings, steps)
    for request in HTTP:
        whole = Step(BYTES, data=request)
        yield write_script(0, [whole, whole])
        yield write_script(0, [Step(ops["stall"], 9), whole, Step(ops["read_on"], 9)])
        for end in ends:
            yield write_script(0, [whole, Step(ops["change"]), *end])
            yield write_script(0, [Step(BYTES, data=request[:20]), *end])


_MAKERS: Final[dict[str, Callable[[], Iterator[bytes]]]] = {
    "agent": _agent,
    "codec-2": lambda: _codec(2),
    "codec-4": lambda: _codec(4),
    "controller": _controller,
    "forwarder": _forwarder,
    "framing": _framing,
    "http": _http,
    "pair": _pair,
    "spec": _spec,
}

assert _MAKERS.keys() == TARGETS.keys()
