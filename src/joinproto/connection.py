"""The protocol without I/O: bytes and times go in, bytes and effects come out.

Both classes are driven the same way.  Whoever owns the socket calls `receive_data`, `receive_eof`
and `link_broken` with what it read, hands `data_to_send` to the system, says `flushed` when it has
taken all of it, and calls `handle_timer` when `next_timer` has come.  Every call returns the
effects that are left to carry out, in order (see `joinproto.effects`); effects that only concern
bytes, keys and timers have been dealt with here.

Times are seconds on any clock that only goes forward, the same one for all calls.
"""

from __future__ import annotations

from typing import Any

from joinproto import codec
from joinproto import effects as fx
from joinproto.errors import DecodeError, Stage
from joinproto.framing import Frame, Framer
from joinproto.grammar import CHANNEL_MAGICS, HTTP_HEADS, JOIN_KIND, JOIN_MAGIC, KINDS, WIRES
from joinproto.inputs import (
    AbortRun,
    Admit,
    ChildDrained,
    ChildExited,
    ChildFailed,
    ChildStarted,
    ChildStuck,
    Connected,
    ConnectFailed,
    Dismiss,
    EndOfStream,
    Flushed,
    Form,
    HelperDied,
    KillChild,
    LinkBroken,
    OutputEnded,
    Refuse,
    Routed,
    Start,
    StopChild,
    StopRequested,
    Undecodable,
)
from joinproto.keys import OPEN, Salt
from joinproto.machines.agent import AGENT, AgentContext, AgentState, Plan
from joinproto.machines.child import CHILD, ChildContext
from joinproto.machines.controller import (
    CONTROLLER,
    Admission,
    ControllerContext,
    ControllerState,
)
from joinproto.messages import Message
from joinproto.session import Session


class _Link:
    """Frames in both directions, and the machine that obeys them."""

    def __init__(self, session: Session[Any], framer: Framer) -> None:
        self._session = session
        self._framer = framer
        self._out = bytearray()
        self._key: Salt = OPEN
        self._linked = False
        self.notes: list[codec.Note] = []
        """What was remarkable about the bytes of the messages received so far, each once."""

    # -- what the owner of the socket calls ---------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> list[Any]:
        """Take bytes that came in, however they were split."""
        if not self._linked:
            return []
        self._framer.feed(data)
        return self._obey_frames(now)

    def receive_eof(self, now: float) -> list[Any]:
        """Take the end of the stream."""
        if not self._linked:
            return []
        try:
            self._framer.end()
        except DecodeError as error:
            return self._step(Undecodable(error=error), now)
        return self._step(EndOfStream(), now)

    def link_broken(self, cause: str, now: float) -> list[Any]:
        """Take the failure of the connection: a reset, a write that failed."""
        return self._step(LinkBroken(cause=cause), now) if self._linked else []

    def data_to_send(self) -> bytes:
        """Take the bytes that are to go out; they are not given twice."""
        if not self._out:
            return b""
        data = bytes(self._out)
        self._out.clear()
        return data

    def flushed(self, now: float) -> list[Any]:
        """Say that the system has taken all that `data_to_send` gave."""
        return self._step(Flushed(), now) if self._linked else []

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None: not at all."""
        return self._session.next_timer

    def handle_timer(self, now: float) -> list[Any]:
        """Let every deadline that has come expire."""
        return self._carry_out(self._session.expire(now), now)

    @property
    def machine(self) -> Session[Any]:
        """The machine that obeys the frames; its own inputs go through this connection."""
        return self._session

    # -- inside -------------------------------------------------------------------------------

    def _step(self, given: Any, now: float) -> list[Any]:
        return self._carry_out(self._session.step(given, now), now)

    def _carry_out(self, effects: list[Any], now: float) -> list[Any]:
        left: list[Any] = []
        for effect in effects:
            left += self._one(effect, now)
        return left

    def _one(self, effect: Any, now: float) -> list[Any]:
        match effect:
            case fx.UseKey(key=key):
                self._key = key
            case fx.OpenChannel():
                self._out += JOIN_MAGIC
            case fx.Send(message=message):
                self._send(message)
            case fx.CloseLink() | fx.HandOver():
                self._linked = False
                return [effect]
            case _:
                return [effect]
        return []

    def _send(self, message: Message) -> None:
        wire = self.wire
        self._out += codec.encode(codec.fitted(message, wire=wire), key=self._key, wire=wire)

    @property
    def wire(self) -> int:
        """The version of the frames that are sent."""
        raise NotImplementedError  # pragma: no cover - both subclasses have one

    def _ready(self) -> bool:
        """Whether the next frame may be looked at."""
        return self._linked

    def _obey_frames(self, now: float) -> list[Any]:
        effects: list[Any] = []
        # One at a time: a frame may change the key of the one behind it.
        while self._ready() and (given := self._next_input()) is not None:
            effects += self._step(given, now)
        return effects

    def _next_input(self) -> Message | Undecodable | None:
        try:
            frame = self._framer.next_frame()
            if frame is None:
                return None
            self._seen(frame)
            codec.check_tag(frame.kind, frame.payload, frame.tag, self._key)
        except DecodeError as error:
            return Undecodable(error=error)
        try:
            return self._decoded(frame)
        except DecodeError as error:
            return Undecodable(error=error, tagged=True)

    def _decoded(self, frame: Frame) -> Message:
        if frame.kind != JOIN_KIND:
            kind = KINDS[frame.kind]
            raise DecodeError(Stage.KIND, f"a {kind} frame has no business on the join channel")
        decoded = codec.decode_payload(frame.payload, wire=frame.wire)
        self.notes += [note for note in decoded.notes if note not in self.notes]
        return decoded.message

    def _seen(self, frame: Frame) -> None:
        """Take note of a frame before its tag is looked at."""


class AgentConnection(_Link):
    """A whole agent, from its first dial to the end of its last rank.

    Args:
        plan: what it sets out to do.

    The effects left to the caller are `Dial`, `CloseLink`, `Spawn`, `Terminate`, `Kill`, `Tell` and
    `Finish`; after `Finish` nothing more comes.
    """

    def __init__(self, plan: Plan) -> None:
        self._agent = Session(AGENT, AgentContext(plan=plan))
        self._children: dict[int, Session[ChildContext]] = {}
        super().__init__(self._agent, Framer())

    @property
    def state(self) -> AgentState:
        """Where the agent is."""
        state = self._agent.state
        assert isinstance(state, AgentState)
        return state

    @property
    def context(self) -> AgentContext:
        """What the agent knows."""
        return self._agent.context

    @property
    def key(self) -> Salt:
        """The key in force: the join key until Accept, the session salt from then on."""
        return self._key

    @property
    def wire(self) -> int:
        """The version in use."""
        return self.context.version

    # -- dialing ------------------------------------------------------------------------------

    def start(self, now: float) -> list[Any]:
        """Begin; the first `Dial` comes back."""
        return self._step(Start(), now)

    def connected(self, peer: str, now: float) -> list[Any]:
        """A dial led to a connection to `peer`; after the end, nothing comes of it."""
        self._linked = not self._agent.final
        self._out.clear()
        self._framer = Framer(wires=frozenset((self.wire,)))
        return self._step(Connected(peer=peer), now)

    def connect_failed(self, cause: str, now: float) -> list[Any]:
        """A dial led nowhere."""
        return self._step(ConnectFailed(cause=cause), now)

    def stop(self, reason: str, number: int, now: float) -> list[Any]:
        """End: `reason` is the signal's name and `number` its number, or a caller's word and 0."""
        return self._step(StopRequested(reason=reason, number=number), now)

    # -- children -----------------------------------------------------------------------------

    def child_started(self, slot: int, now: float) -> list[Any]:
        """The process of a `Spawn` runs."""
        given = ChildStarted(slot=slot)
        return [*self._step(given, now), *self._child(slot, given, now)]

    def child_failed(
        self, slot: int, cause: str, now: float, *, not_found: bool = False
    ) -> list[Any]:
        """The process of a `Spawn` could not be started."""
        given = ChildFailed(slot=slot, cause=cause, not_found=not_found)
        return [*self._child(slot, given, now), *self._step(given, now)]

    def child_exited(self, slot: int, code: int, now: float) -> list[Any]:
        """A child's process was reaped; `code` is −N when signal N ended it."""
        return self._child(slot, ChildExited(slot=slot, code=code), now)

    def helper_died(self, cause: str, now: float) -> list[Any]:
        """The process between the agent and its children is gone; their ends are still to come."""
        return self._step(HelperDied(cause=cause), now)

    def output_ended(self, slot: int, now: float) -> list[Any]:
        """All that a child will ever write has been forwarded."""
        return self._child(slot, OutputEnded(), now)

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None: not at all."""
        sessions: list[Session[Any]] = [self._agent, *self._children.values()]
        times = (session.next_timer for session in sessions)
        return min((time for time in times if time is not None), default=None)

    def handle_timer(self, now: float) -> list[Any]:
        """Let every deadline that has come expire."""
        effects = super().handle_timer(now)
        for slot, session in list(self._children.items()):
            effects += self._relate(slot, session.expire(now), now)
        return effects

    # -- inside -------------------------------------------------------------------------------

    def _one(self, effect: Any, now: float) -> list[Any]:
        match effect:
            case fx.Spawn(slot=slot):
                context = ChildContext(slot=slot, scale=self.context.plan.scale)
                self._children[slot] = Session(CHILD, context)
                return [effect]
            case fx.StopChildren(deadline=deadline):
                return self._all(StopChild(deadline=deadline), now)
            case fx.KillChildren():
                return self._all(KillChild(), now)
            case _:
                return super()._one(effect, now)

    def _all(self, given: StopChild | KillChild, now: float) -> list[Any]:
        effects: list[Any] = []
        for slot in list(self._children):
            effects += self._child(slot, given, now)
        return effects

    def _child(self, slot: int, given: Any, now: float) -> list[Any]:
        return self._relate(slot, self._children[slot].step(given, now), now)

    def _relate(self, slot: int, effects: list[Any], now: float) -> list[Any]:
        """Turn what a child tells into inputs of the agent."""
        left: list[Any] = []
        for effect in effects:
            match effect:
                case fx.TellExited(code=code):
                    left += self._step(ChildExited(slot=slot, code=code), now)
                case fx.TellDrained():
                    left += self._step(ChildDrained(slot=slot), now)
                case fx.TellStuck():
                    left += self._step(ChildStuck(slot=slot), now)
                case _:
                    left.append(effect)
        return left


class ControllerConnection(_Link):
    """A controller's side of one dial.

    Args:
        admission: how hosts are admitted.
        wires: the versions that are spoken.

    The effects left to the caller are `Offer` (answer it with `admit`, `refuse` or `dismiss`),
    `ReportRank`, `TurnedAway`, `Lost`, `EndSending`, `CloseLink`, `HandOver` (whoever speaks HTTP
    gets the connection, with `head` as what came on it so far) and `Tell`.
    """

    def __init__(self, admission: Admission, *, wires: frozenset[int] = frozenset(WIRES)) -> None:
        self._session: Session[ControllerContext]
        context = ControllerContext(admission=admission)
        super().__init__(Session(CONTROLLER, context), Framer(wires=wires))
        self._wire = min(wires)
        self._head = bytearray()
        self.channel: str | None = None
        """The channel that the first four bytes ask for; None before they are there."""

    @property
    def state(self) -> ControllerState:
        """Where the connection is."""
        state = self._session.state
        assert isinstance(state, ControllerState)
        return state

    @property
    def context(self) -> ControllerContext:
        """What is known of the dialer."""
        return self._session.context

    @property
    def wire(self) -> int:
        """The version that the dialer speaks, once it has sent a frame."""
        return self._wire

    @property
    def head(self) -> bytes:
        """What had come when the channel showed, its magic included."""
        return bytes(self._head)

    @property
    def held_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return self._framer.held

    def start(self, now: float) -> list[Any]:
        """Begin, with a connection that was just accepted."""
        self._linked = True
        return self._step(Start(), now)

    def receive_data(self, data: bytes, now: float) -> list[Any]:
        """Take bytes that came in, however they were split."""
        if self.channel is not None or not self._linked:
            return super().receive_data(data, now)
        self._head += data
        if len(self._head) < len(JOIN_MAGIC):
            return []
        magic, rest = bytes(self._head[: len(JOIN_MAGIC)]), bytes(self._head[len(JOIN_MAGIC) :])
        self.channel = "http" if magic in HTTP_HEADS else CHANNEL_MAGICS.get(magic, "")
        return [*self._step(Routed(channel=self.channel), now), *super().receive_data(rest, now)]

    def admit(self, ranks: tuple[int, ...], formation_wait_secs: int, now: float) -> list[Any]:
        """Answer an `Offer`: the host is in."""
        return self._decide(Admit(ranks=ranks, formation_wait_secs=formation_wait_secs), now)

    def refuse(self, reason: str, now: float) -> list[Any]:
        """Answer an `Offer`: the host is told why it is not in."""
        return self._decide(Refuse(reason=reason), now)

    def dismiss(self, reason: str, now: float) -> list[Any]:
        """Answer an `Offer`: the connection is closed without a word."""
        return self._decide(Dismiss(reason=reason), now)

    def form(self, envelope_hex: str, relay_spec_hex: str | None, now: float) -> list[Any]:
        """The world is complete; these are this host's artifacts."""
        return self._step(Form(envelope_hex=envelope_hex, relay_spec_hex=relay_spec_hex), now)

    def abort(self, reason: str, now: float) -> list[Any]:
        """The run is given up."""
        return self._step(AbortRun(reason=reason), now)

    def _decide(self, given: Admit | Refuse | Dismiss, now: float) -> list[Any]:
        return [*self._step(given, now), *self._obey_frames(now)]

    def _ready(self) -> bool:
        return self._linked and self.state is not ControllerState.DECIDING

    def _next_input(self) -> Message | Undecodable | None:
        if self.state is ControllerState.REJECTING:
            # Nothing that comes now is looked at, so nothing of it is kept.
            self._framer = Framer()
            return None
        return super()._next_input()

    def _seen(self, frame: Frame) -> None:
        if len(self._framer.wires) > 1:
            self._framer.wires = frozenset((frame.wire,))
        self._wire = frame.wire
