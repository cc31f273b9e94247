"""forwarder: what two ranks write, given on by `Streams` through real pipes.

A case is a script.  Settings: the prefix, which always tells the streams apart.  Data steps are
written by the rank and to the stream chosen last (a frame's payload counts as bytes); acts choose,
let the loop turn, the reader read, time pass, a stream end.

Invariant: every byte of every stream comes out once and in its order, each line behind the prefix
of its stream and never torn by another's; where no progress bar was given on before its line ended,
no line end is added but at a stream's end.  A `Liner` of small pieces does the same.  No more than
the bounds say is held.

Exceptions allowed: `ConfigError` of a prefix template (an act takes the last data for one): its one
way of refusing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from joinproto.effects import Severity, Spawn
from joinproto.errors import ConfigError
from joinproto.fuzzing.pieces import BYTES, FRAME, Step, read_script
from joinproto.runtime.forward import Liner
from joinproto.runtime.loop import Loop
from joinproto.runtime.output import Output, flush
from joinproto.runtime.prefix import Prefix
from joinproto.runtime.streams import HELD_BYTES, OutputSettings, Streams

TEMPLATES: Final = ("{rank:>3}{stream}|", "<{host}{local_rank}{device}{stream}>", "{stream}{rank} ")
PIECE: Final = 5
STREAMS: Final = ((0, "out"), (0, "err"), (1, "out"), (1, "err"))


def check(data: bytes) -> None:
    """Raises `AssertionError`, or whatever was raised, where the invariant is broken."""
    settings, steps = read_script(data)
    with ExitStack() as stack:
        run = _Run(settings, stack)
        for step in steps:
            run.step(step)
        run.wind_up()
    written = {key: bytes(data) for key, data in run.written.items()}
    run.compare(written)
    _check_liner([step.data for step in steps if step.op in (BYTES, FRAME)])


def _check_liner(pieces: list[bytes]) -> None:
    liner = Liner(b">", PIECE)
    out = b"".join(liner.feed(piece, 0.0) for piece in pieces) + liner.finish()
    lines = out.split(b"\n")
    assert lines.pop() == b"", "it does not end with a line end"
    assert all(line.startswith(b">") for line in lines), "a line without its prefix"
    assert all(len(line) <= 1 + PIECE for line in lines), "a line that is too long"
    assert b"".join(line[1:] for line in lines) == b"".join(pieces).replace(b"\n", b"")


class _Run:
    def __init__(self, settings: int, stack: ExitStack) -> None:
        self.template = TEMPLATES[settings % len(TEMPLATES)]
        self.loop = Loop()
        stack.callback(self.loop.close)
        self.out = b""
        self.last = b""
        self.chosen = 0
        self.early = False
        self.written = {key: bytearray() for key in STREAMS}
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.reader = reading
        stack.callback(os.close, reading)
        stack.callback(os.close, writing)
        self.output = Output(self.loop, out=writing, err=writing, resumed=self.resumed)
        stack.callback(self.output.close)
        prefix = Prefix(self.template)
        self.streams = Streams(
            *(self.loop, self.output, "h", OutputSettings(prefix=prefix), 2, self.tell, self.lost)
        )
        self.fds: dict[tuple[int, str], int] = {}
        stack.callback(self.close_all)
        self.ended = 0
        for rank in (0, 1):
            self.attach(rank)

    def attach(self, rank: int) -> None:
        pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(2)]
        for name, (_, writing) in zip(("out", "err"), pipes, strict=True):
            self.fds[rank, name] = writing
        self.streams.attach(_spawn(rank), (pipes[0][0], pipes[1][0]), self.end, lambda data: None)

    def end(self) -> None:
        self.ended += 1

    def resumed(self) -> None:
        self.streams.resume()

    def tell(self, severity: Severity, text: str) -> None:
        raise AssertionError(f"nothing was to be told: {text}")

    def lost(self, count: int, lines: int) -> None:
        raise AssertionError(f"{count} bytes were dropped")

    def step(self, step: Step) -> None:
        if step.op in (BYTES, FRAME):
            self.write(step.data)
        else:
            ACTS[(step.op - 2) % len(ACTS)](self, step.argument)
        assert self.output.held_bytes <= HELD_BYTES, "more is held than may be"

    def write(self, data: bytes) -> None:
        self.last = data
        key = STREAMS[self.chosen % len(STREAMS)]
        fd = self.fds.get(key)
        if fd is not None and data:
            try:
                count = os.write(fd, data)
            except BlockingIOError:
                return
            self.written[key] += data[:count]

    # -- acts ---------------------------------------------------------------------------------

    def choose(self, argument: int) -> None:
        self.chosen = argument

    def template_of(self, argument: int) -> None:
        text = self.last.decode(errors="surrogateescape")
        try:
            prefix = Prefix(text).of("h", _spawn(0), "out")()
        except ConfigError:
            return
        assert b"\n" not in prefix, "a line break in a prefix"

    def turn(self, argument: int) -> None:
        self.loop.run_once(0.0)

    def read(self, argument: int) -> None:
        try:
            self.out += os.read(self.reader, 1 + 64 * argument)
        except BlockingIOError:
            return

    def pass_time(self, argument: int) -> None:
        self.early = True
        self.streams.handle_timer(self.loop.now() + argument)

    def close_one(self, argument: int) -> None:
        fd = self.fds.pop(STREAMS[argument % len(STREAMS)], None)
        if fd is not None:
            os.close(fd)

    # -- the end ------------------------------------------------------------------------------

    def close_all(self) -> None:
        while self.fds:
            os.close(self.fds.popitem()[1])

    def wind_up(self) -> None:
        self.close_all()
        self.streams.drain(lambda: flush(self.loop, self.output.sinks, 0.0))
        for _ in range(100):
            self.read(255)
            self.loop.run_once(0.0)
        self.read(1 << 16)
        self.streams.close()
        assert self.ended == 2, "the end of a child was not told, or told twice"
        assert not self.output.held_bytes, "bytes are still held"

    def compare(self, written: dict[tuple[int, str], bytes]) -> None:
        lines = self.out.split(b"\n")
        assert lines.pop() == b"", "the last line does not end"
        came = dict.fromkeys(STREAMS, b"")
        for line in lines:
            fits = [key for key in STREAMS if line.startswith(self.prefix(key))]
            assert fits, "a line without a prefix"
            key = fits[0]
            came[key] += line[len(self.prefix(key)) :] + b"\n"
        for key, data in written.items():
            if self.early:
                assert came[key].replace(b"\n", b"") == data.replace(b"\n", b""), key
            else:
                assert came[key] == data + b"\n" * (data[-1:] not in (b"", b"\n")), key

    def prefix(self, key: tuple[int, str]) -> bytes:
        rank, name = key
        return Prefix(self.template).of("h", _spawn(rank), name)()


def _spawn(rank: int) -> Spawn:
    return Spawn(slot=rank, artifact_hex="", rank=rank, local_rank=rank, device=rank, wire=4)


ACTS: Final[tuple[Callable[[_Run, int], None], ...]] = (
    _Run.choose,
    _Run.template_of,
    _Run.turn,
    _Run.read,
    _Run.pass_time,
    _Run.close_one,
)
"""Steps 2, 3, … of a script, and over again."""
