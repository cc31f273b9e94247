"""Faults of an agent, by the phase in which they show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joinproto import effects as fx
from joinproto.conformance.verdicts import Verdict
from joinproto.errors import ConfigError, Stage, Stopped
from joinproto.inputs import (
    ChildDrained,
    ConnectFailed,
    EndOfStream,
    LinkBroken,
    StopRequested,
    Undecodable,
)
from joinproto.keys import OPEN, Salt
from joinproto.limits import Timer
from joinproto.machines.agent import AGENT, joining, supervising
from joinproto.machines.agent import AgentState as S
from joinproto.machines.agent.context import AgentContext
from joinproto.messages import Abort, Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.record import replace
from joinproto.table import Rule
from tests.support.mutants import wire
from tests.support.mutants.changes import (
    Act,
    Change,
    Mutant,
    acting,
    after,
    asking,
    cell,
    nothing,
    put,
    table,
    together,
    without,
)

Effects = tuple[Any, ...]


def _said(edit: Callable[[Any, Any], Any]) -> Callable[..., Effects]:
    """Effects with their messages edited: `edit` gets context and message, gives one or more."""

    def edited(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
        out: list[Any] = []
        for effect in effects:
            if isinstance(effect, fx.Send):
                messages = edit(ctx, effect.message)
                messages = messages if isinstance(messages, tuple) else (messages,)
                out += [fx.Send(message=each) for each in messages]
            else:
                out.append(effect)
        return tuple(out)

    return edited


def _hello(**edits: Callable[[Any], Any]) -> Change:
    """A Hello with some fields said otherwise."""

    def edit(ctx: Any, message: Hello) -> Hello:
        values = {**vars(message)}
        return Hello(**values | {name: by(values[name]) for name, by in edits.items()})

    return acting(AGENT, joining.greet, after(joining.greet, _said(edit)))


def _report(edit: Callable[[Any, RankExited], Any]) -> Change:
    """Reports said otherwise."""
    return _drained(_said(edit))


def _drained(edit: Callable[..., Effects]) -> Change:
    """What is done when a child is through, in all three rows of it."""
    changed = after(supervising.child_drained, edit)
    return together(
        put(supervising, "child_drained", changed),
        acting(AGENT, supervising.child_drained, changed),
    )


def _code(by: Callable[[int], int]) -> Change:
    return _report(lambda ctx, message: RankExited(rank=message.rank, code=by(message.code)))


# -- deadlines --------------------------------------------------------------------------------


def _timer(act: Act, timer: Timer, at: Callable[[Any, Any, float], float | None]) -> Change:
    """A deadline at another time; None: none at all."""

    def edited(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
        out = [
            each for each in effects if not isinstance(each, fx.SetTimer) or each.timer is not timer
        ]
        due = at(ctx, given, now)
        return (*out, *(() if due is None else (fx.SetTimer(timer=timer, at=due),)))

    return acting(AGENT, act, after(act, edited))


def _reply(seconds: float | None) -> Change:
    return _timer(
        joining.await_accept,
        Timer.REPLY,
        lambda ctx, given, now: None if seconds is None else now + seconds,
    )


def _formation(seconds: Callable[[Any, int], float | None]) -> Change:
    def at(ctx: Any, given: Accept, now: float) -> float | None:
        wait = seconds(ctx, given.formation_wait_secs)
        return None if wait is None else now + wait

    return _timer(joining.admitted, Timer.FORMATION, at)


# -- acts that are wrong ----------------------------------------------------------------------


def _accept_again(ctx: Any, given: Accept, now: float) -> Any:
    return replace(ctx, ranks=given.ranks), ()


def _formed_unasked(ctx: Any, given: WorldFormed, now: float) -> Any:
    ranks = tuple(range(len(ctx.plan.hello.local_devices)))
    return supervising.formed(replace(ctx, ranks=ranks), given, now)


def _ends_well(ctx: Any, given: Any, now: float) -> Any:
    return replace(ctx, link=False), (fx.CloseLink(), fx.Finish(error=None))


def _redials(ctx: Any, given: Any, now: float) -> Any:
    return joining.pause_and_redial(ctx, EndOfStream(), now)


def _any_ranks(ctx: Any, given: Accept) -> Any:
    if len(given.ranks) == len(ctx.plan.hello.local_devices):
        return _FAULT(ctx, given)
    return None


def _spare_ranks(ctx: Any, given: Accept) -> Any:
    return _any_ranks(ctx, given) if len(given.ranks) > _devices(ctx) else _FAULT(ctx, given)


def _devices(ctx: Any) -> int:
    return len(ctx.plan.hello.local_devices)


def _no_salt(ctx: Any, given: Accept) -> Any:
    if given.salt_hex is None and len(given.ranks) == _devices(ctx):
        return None
    return _FAULT(ctx, given)


def _cut_to_devices(act: Act) -> Act:
    def cut(ctx: Any, given: Accept, now: float) -> Any:
        ranks = (*given.ranks, *range(_devices(ctx)))[: _devices(ctx)]
        given = Accept(
            ranks=ranks, salt_hex=given.salt_hex, formation_wait_secs=given.formation_wait_secs
        )
        return act(ctx, given, now)

    return cut


def _given_salt(ctx: Any, given: Accept, now: float) -> Any:
    """The salt of Accept, also where another is held."""
    ctx, effects = joining.admitted(ctx, given, now)
    try:
        key = Salt.from_hex(given.salt_hex or "")
    except ConfigError:
        return ctx, effects
    return ctx, (*effects, fx.UseKey(key=key))


def _open_salt(ctx: Any, given: Accept, now: float) -> Any:
    """Zeros where Accept has no salt."""
    if given.salt_hex is None and ctx.plan.salt is None:
        salted = Accept(
            ranks=given.ranks,
            salt_hex=OPEN.hex(),
            formation_wait_secs=given.formation_wait_secs,
        )
        return joining.admitted(ctx, salted, now)
    return joining.admitted(ctx, given, now)


def _spawns_early(ctx: Any, given: Accept, now: float) -> Any:
    ctx, effects = joining.admitted(ctx, given, now)
    ctx, more = supervising.formed(ctx, WorldFormed(envelope_hex="7b7d"), now)
    return ctx, (*effects, *more)


_ADMITTED = next(rule for rule in AGENT.rules if rule.act is joining.admitted)

SPAWNS_EARLY = table(
    AGENT,
    [
        part
        for rule in AGENT.rules
        for part in (
            (
                Rule(
                    source=rule.source,
                    on=rule.on,
                    when=lambda ctx, given, now: True,
                    target=S.SUPERVISING,
                    act=_spawns_early,
                ),
                rule,
            )
            if rule is _ADMITTED
            else (rule,)
        )
    ],
)


def _one_rank(ctx: Any, given: WorldFormed, now: float) -> Any:
    """Relay and first rank alone."""
    ctx, effects = supervising.formed(ctx, given, now)
    slots = frozenset(range(ctx.relays + 1))
    started = tuple(
        each for each in effects if not isinstance(each, fx.Spawn) or each.slot in slots
    )
    return replace(ctx, alive=slots, unreported=slots), started


def _last_report(ctx: Any, given: ChildDrained, now: float, effects: Effects) -> Effects:
    """The last report is not sent."""
    return () if not ctx.unreported else effects


def _all_at_the_end(ctx: Any, given: ChildDrained, now: float, effects: Effects) -> Effects:
    if ctx.unreported or not ctx.link:
        return ()
    ranks = [(ctx.rank_of(slot), code) for slot, code in ctx.codes]
    return tuple(
        fx.Send(message=RankExited(rank=rank, code=code))
        for rank, code in ranks
        if rank is not None
    )


def _for_relay(ctx: Any, given: ChildDrained, now: float, effects: Effects) -> Effects:
    if ctx.rank_of(given.slot) is None and ctx.link:
        code = dict(ctx.codes)[given.slot]
        return (fx.Send(message=RankExited(rank=ctx.ranks[0], code=code)),)
    return effects


def _first_close(ctx: Any, given: ChildDrained, now: float, effects: Effects) -> Effects:
    """The sending side is closed with the first report of several."""
    return (*effects, fx.EndSending()) if ctx.unreported else effects


def _undecoded(state: S) -> Change:
    """A payload that cannot be decoded is ignored there."""
    ignoring = Rule(
        source=state, on=Undecodable, when=supervising.only_payload, target=state, act=nothing
    )
    return table(AGENT, [ignoring, *AGENT.rules])


def _failed_rank(ctx: Any, given: Any, now: float) -> Any:
    """A rank that fails takes the others along."""
    ctx, effects = supervising.child_exited(ctx, given, now)
    if given.code and ctx.alive:
        ctx, more = supervising._tear_down(ctx, Stopped("rank", 0), now)
        return ctx, (*effects, *more)
    return ctx, effects


def _relay_code(ok: bool) -> Act:
    """The relay's end is judged by another code."""

    def exited(ctx: Any, given: Any, now: float) -> Any:
        if ctx.rank_of(given.slot) is not None:
            return supervising.child_exited(ctx, given, now)
        judged = replace(given, code=0 if ok else 1)
        ctx, effects = supervising.child_exited(ctx, judged, now)
        return ctx, effects

    return exited


def _degraded(ctx: Any, given: Any, now: float) -> Any:
    """Ranks that failed make the agent fail."""
    ctx, effects = supervising.finish_well(ctx, given, now)
    if not ctx.failed_ranks:
        return ctx, effects
    error = Stopped("a rank failed", 0)
    return ctx, (*effects[:-1], fx.Finish(error=error))


def _torn_down_well(ctx: Any, given: Any, now: float) -> Any:
    """A host that was torn down ends as if all were well."""
    ctx, effects = supervising.finish_ill(ctx, given, now)
    return ctx, (*effects[:-1], fx.Finish(error=None))


def _again(ctx: Any, given: WorldFormed, now: float) -> Any:
    """A second WorldFormed tears the host down."""
    return supervising._tear_down(ctx, Stopped("WorldFormed", 0), now)


def _strange(ctx: Any, given: Any, now: float) -> Any:
    """A message but WorldFormed that means nothing tears the host down."""
    if isinstance(given, WorldFormed):
        return supervising.tell_strange(ctx, given, now)
    return _again(ctx, given, now)


def _silent_lost(ctx: Any, given: Any, now: float) -> Any:
    return replace(ctx, link=False), (fx.CloseLink(),)


def _abort_and_go(ctx: Any, given: Abort, now: float) -> Any:
    """After an Abort nothing is reported any more."""
    ctx, effects = supervising.aborted(ctx, given, now)
    return replace(ctx, link=False), effects


def _strict_payload(ctx: Any, given: Undecodable, now: float) -> bool:
    return False


def _any_bytes(ctx: Any, given: Undecodable, now: float) -> bool:
    return given.error.stage in (Stage.PAYLOAD, Stage.TAG)


_FAULT = joining._accept_fault


def _mutant(
    name: str,
    what: str,
    change: Change,
    named: str = "",
    *related: str,
    verdict: Verdict = Verdict.FAIL,
) -> Mutant:
    return Mutant(
        name=name,
        role="agent",
        what=what,
        change=change,
        named=named,
        related=related,
        verdict=verdict,
    )


AGENT_MUTANTS = (
    # -- frames and payloads that come in
    _mutant(
        "any-magic",
        "The magic of a frame is not looked at.",
        wire.ANY_MAGIC,
        "framing/answer-with-wrong-magic",
        "framing/formed-with-wrong-magic",
        "teardown/frame-with-wrong-magic",
    ),
    _mutant(
        "any-version",
        "A frame of an unknown version is obeyed.",
        wire.ANY_VERSION,
        "framing/answer-of-version-99",
        "framing/formed-of-version-0",
        "teardown/frame-with-wrong-version",
        "wires/answer-*",
    ),
    _mutant(
        "mixed-versions",
        "A frame of another version than the first is obeyed.",
        wire.MIXED,
        "wires/answer-in-wire-2",
        "wires/answer-in-wire-4",
        "wires/formed-in-wire-2",
        "wires/formed-in-wire-4",
    ),
    _mutant(
        "any-kind",
        "A frame of a kind that there is not is obeyed.",
        wire.ANY_KIND,
        "framing/answer-of-kind-0",
        "framing/formed-of-kind-8",
    ),
    _mutant(
        "other-kind",
        "A frame of another channel's kind is obeyed.",
        wire.OTHER_KIND,
        "framing/answer-of-kind-1",
        "framing/formed-of-kind-6",
        "framing/running-kind-1",
        "teardown/frame-with-wrong-kind",
    ),
    _mutant(
        "cap-above",
        "One byte more than 16 MiB is waited for.",
        wire.CAP_ABOVE,
        "framing/payload-one-too-long",
    ),
    _mutant(
        "cap-below",
        "A payload of exactly 16 MiB is refused.",
        wire.CAP_BELOW,
        "framing/largest-payload",
    ),
    _mutant(
        "late-length",
        "Too long a payload is refused when some of it is there.",
        wire.LATE,
        "framing/payload-of-4-gib",
        "framing/payload-one-too-long",
    ),
    _mutant(
        "one-piece",
        "A frame is read only when it comes in one piece.",
        wire.ONE_PIECE,
        "framing/byte-by-byte",
        "framing/small-pieces",
        "framing/cut-across",
    ),
    _mutant(
        "one-frame",
        "Of frames that come at once only the first is read.",
        wire.ONE_FRAME,
        "framing/both-in-one",
        "teardown/abort-while-starting",
    ),
    _mutant(
        "clean-cut",
        "A stream cut inside a payload is taken for a clean end.",
        wire.CLEAN_CUT,
        "framing/end-in-payload",
    ),
    _mutant(
        "strict-cut",
        "A stream cut inside a header is taken for an error.",
        wire.STRICT_CUT,
        "framing/end-in-header",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "short-tag",
        "The last byte of a tag is not compared.",
        wire.SHORT_TAG,
        "tags/accept-with-flipped-tag",
        "framing/tag-before-payload",
        "tags/formed-with-flipped-tag",
        "teardown/frame-with-wrong-tag",
    ),
    _mutant(
        "untagged-accept",
        "The tag of an Accept is not checked.",
        wire.untagged(1),
        "tags/accept-with-other-key",
        "tags/accept-*",
    ),
    _mutant(
        "untagged-formed",
        "The tag of a WorldFormed is not checked.",
        wire.untagged(3),
        "tags/formed-with-zero-key",
        "tags/formed-*",
        "teardown/frame-with-wrong-tag",
    ),
    _mutant(
        "zero-key",
        "A frame tagged with zeros is taken at all times.",
        wire.ZERO_KEY,
        "tags/formed-with-zero-key",
        "tags/accept-with-zero-key",
        "tags/formed-with-join-key",
    ),
    _mutant(
        "big-endian",
        "A number behind marker 252 is read the wrong way round.",
        wire.BIG_ENDIAN,
        "payload/ranks-of-every-width",
    ),
    _mutant(
        "any-marker",
        "Markers 253 to 255 are taken where they must not be.",
        wire.ANY_MARKER,
        "payload/marker-254",
        "payload/u32-of-nine-bytes",
        "payload/message-number-of-nine-bytes",
    ),
    _mutant(
        "any-option", "An option byte of 2 is taken for 1.", wire.ANY_OPTION, "payload/option-2"
    ),
    _mutant(
        "any-text",
        "A string that is not UTF-8 is taken.",
        wire.ANY_TEXT,
        "payload/not-utf-8",
        "payload/surrogate",
    ),
    _mutant(
        "long-text",
        "A string longer than its payload is taken.",
        wire.LONG_TEXT,
        "payload/running-string-of-2-40",
        "payload/running-string-of-2-64",
    ),
    _mutant(
        "no-empty-text", "An empty string is refused.", wire.NO_EMPTY_TEXT, "payload/empty-string"
    ),
    _mutant(
        "short-payload",
        "A payload that ends early is filled with zeros.",
        wire.SHORT_PAYLOAD,
        "payload/last-field-missing",
        "joining/world-that-is-no-message",
        "payload/cut-in-number",
        "payload/string-one-too-long",
        "payload/string-of-2-40",
        "payload/running-string-of-2-40",
        "payload/running-string-of-2-64",
    ),
    # -- what is said
    _mutant(
        "no-zigzag",
        "A rank's code is sent as a plain u32.",
        wire.NO_ZIGZAG,
        "payload/code-of-two-bytes",
        "messages/code-*",
        "payload/code-of-two-bytes",
        "payload/running-*",
        "supervising/all-at-a-time",
        "wires/whole-run",
    ),
    _mutant(
        "characters-written",
        "Strings go out with a length in characters.",
        wire.CHARACTERS_WRITTEN,
        "payload/host-beyond-ascii",
    ),
    _mutant(
        "octets-as-numbers",
        "Device numbers go out as varints.",
        wire.OCTETS_WRITTEN_AS_NUMBERS,
        "payload/devices-above-250",
    ),
    _mutant(
        "signature-length",
        "An optional signature goes out with a length.",
        wire.SIGNATURE_WITH_LENGTH,
        "payload/options-that-are-set",
        "messages/run-id-and-model-sig",
    ),
    _mutant(
        "trailing-hello",
        "A byte stands behind the last field of a Hello.",
        wire.trailing(0),
        "payload/hello-as-encoders-write",
        "payload/host-of-300-bytes",
        "payload/host-beyond-ascii",
        "payload/devices-above-250",
        "payload/signature-without-length",
        "payload/options-that-are-set",
        "payload/options-that-are-not-set",
    ),
    _mutant(
        "trailing-report",
        "A byte stands behind the last field of a report.",
        wire.trailing(4),
        "payload/code-of-two-bytes",
        "payload/code-of-two-bytes",
        "payload/negative-code",
        "payload/ranks-of-every-width",
    ),
    _mutant(
        "long-hello",
        "Numbers of a Hello take more bytes than they need.",
        wire.long_form(0),
        "payload/hello-as-encoders-write",
        "payload/host-of-300-bytes",
        "payload/host-beyond-ascii",
        "payload/devices-above-250",
        "payload/signature-without-length",
        "payload/options-that-are-set",
        "payload/options-that-are-not-set",
    ),
    _mutant(
        "long-report",
        "Numbers of a report take more bytes than they need.",
        wire.long_form(4),
        "payload/code-of-two-bytes",
        "payload/code-of-two-bytes",
        "payload/negative-code",
        "payload/ranks-of-every-width",
    ),
    _mutant(
        "host-lowered",
        "The host name is said in lower case.",
        _hello(host=str.lower),
        "messages/host",
    ),
    _mutant(
        "devices-sorted",
        "Devices are said in the order of their numbers.",
        _hello(local_devices=lambda devices: tuple(sorted(devices))),
        "messages/devices-in-order",
    ),
    _mutant(
        "no-labels",
        "Hello has no labels of devices.",
        _hello(gpus=lambda gpus: ()),
        "messages/one-label-each",
        "messages/labels-of-devices-not-there",
    ),
    _mutant(
        "no-libtorch",
        "Hello has no libtorch label.",
        _hello(libtorch=lambda text: ""),
        "messages/libtorch",
    ),
    _mutant(
        "no-dataset",
        "Hello has no dataset signature.",
        _hello(dataset_sig=lambda sig: bytes(32)),
        "messages/dataset-sig",
    ),
    _mutant(
        "no-run-id",
        "Hello has no run id.",
        _hello(run_id=lambda text: None),
        "messages/run-id-and-model-sig",
    ),
    _mutant(
        "no-model",
        "Hello has no model signature.",
        _hello(model_sig=lambda sig: None),
        "messages/run-id-and-model-sig",
    ),
    _mutant(
        "reported-twice",
        "The end of each rank is reported twice.",
        _report(lambda ctx, message: (message, message)),
        "supervising/each-rank-once",
        "messages/only-hello-and-report",
        "messages/rank-numbers",
        "payload/ranks-of-every-width",
        "supervising/all-at-a-time",
        "supervising/running-rank-is-not-reported",
        "supervising/open-while-a-rank-runs",
        "supervising/open-while-the-relay-runs",
        "supervising/closes-and-ends",
        "teardown/abort-is-reported",
    ),
    _mutant(
        "reported-late",
        "Ends are reported when all ranks have ended.",
        _drained(_all_at_the_end),
        "supervising/while-others-run",
        "messages/rank-numbers",
        "payload/ranks-of-every-width",
        "supervising/each-rank-once",
        "supervising/running-rank-is-not-reported",
        "supervising/others-run-on",
        "supervising/open-while-a-rank-runs",
        "supervising/open-while-the-relay-runs",
    ),
    _mutant(
        "relay-reported",
        "The end of the relay is reported as a rank's.",
        _drained(_for_relay),
        "supervising/relay-is-not-reported",
    ),
    _mutant(
        "local-number",
        "A rank is reported by its place on the host.",
        _report(
            lambda ctx, message: RankExited(rank=ctx.ranks.index(message.rank), code=message.code)
        ),
        "messages/rank-numbers",
        "payload/ranks-of-every-width",
    ),
    _mutant(
        "code-minus-one",
        "Every signal is reported as −1.",
        _code(lambda code: max(code, -1)),
        "messages/code-of-sigkill",
        "messages/code-of-sigsegv",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "code-positive",
        "The end by signal N is reported as N.",
        _code(abs),
        "messages/code-of-a-signal",
        "messages/code-of-sigkill",
        "messages/code-of-sigsegv",
        "payload/negative-code",
    ),
    _mutant(
        "code-shell",
        "The end by signal N is reported as 128 + N.",
        _code(lambda code: 128 - code if code < 0 else code),
        "messages/code-of-sigkill",
        "messages/code-of-a-signal",
        "messages/code-of-sigsegv",
        "payload/negative-code",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "code-low",
        "Codes above 127 are reported as negative.",
        _code(lambda code: code - 256 if code > 127 else code),
        "messages/code-255",
        "payload/code-of-two-bytes",
    ),
    # -- deadlines
    _mutant(
        "reply-never",
        "The answer to Hello has no deadline.",
        _reply(None),
        "joining/no-answer",
        "joining/half-an-answer",
        "joining/answer-that-drips",
    ),
    _mutant(
        "reply-unscaled",
        "The deadline for the answer to Hello is not scaled.",
        _reply(30.0),
        "joining/no-answer",
        "joining/half-an-answer",
        "joining/answer-that-drips",
    ),
    _mutant(
        "reply-early",
        "The deadline for the answer to Hello is half of what it is.",
        _reply(1.5),
        "joining/no-answer",
        "joining/half-an-answer",
    ),
    _mutant(
        "reply-put-off",
        "Bytes that come in put off the deadline for the answer.",
        wire.put_off(Timer.REPLY, 1.0),
        "joining/answer-that-drips",
    ),
    _mutant(
        "formation-never",
        "The world's formation has no deadline.",
        _formation(lambda ctx, wait: None),
        "joining/no-world",
        "joining/world-that-drips",
    ),
    _mutant(
        "formation-scaled",
        "The margin of formation is scaled.",
        _formation(lambda ctx, wait: wait + 30 * ctx.plan.scale),
        "timing/formation-wait-is-not-scaled",
        "joining/no-world",
    ),
    _mutant(
        "formation-wait-scaled",
        "The formation wait of Accept is scaled.",
        _formation(lambda ctx, wait: wait * ctx.plan.scale + 30),
        "joining/no-world",
    ),
    _mutant(
        "formation-margin-only",
        "The formation wait of Accept is not looked at.",
        _formation(lambda ctx, wait: 30),
        "joining/no-world",
    ),
    _mutant(
        "formation-put-off",
        "Bytes that come in put off the deadline of formation.",
        wire.put_off(Timer.FORMATION, 10.0),
        "joining/world-that-drips",
    ),
    # -- dialing
    _mutant(
        "oldest-first",
        "The oldest version is offered first.",
        put(AgentContext, "version", property(lambda ctx: ctx.plan.wires[::-1][ctx.wire])),
        "wires/newest-first",
        "dialing/ended-before-the-answer",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "no-second-attempt",
        "A dial that is closed unanswered in all versions ends the agent.",
        asking(
            AGENT,
            joining.budget_spent,
            lambda ctx, given, now: (
                not isinstance(given, ConnectFailed) or joining.budget_spent(ctx, given, now)
            ),
        ),
        "dialing/ended-before-the-answer",
        "dialing/reset-before-the-answer",
        "dialing/pause-doubles",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "hammering",
        "Dials that are closed unanswered are repeated without a pause.",
        put(
            joining, "_pause", lambda ctx, given: 0.5 if isinstance(given, ConnectFailed) else 0.01
        ),
        "dialing/not-too-often",
        "dialing/pause-doubles",
    ),
    _mutant(
        "steady-pause",
        "The pause after a dial that is closed unanswered does not grow.",
        put(joining, "_pause", lambda ctx, given: 0.5),
        "dialing/pause-doubles",
        verdict=Verdict.NON_STRICT,
    ),
    # -- joining
    _mutant(
        "accept-twice",
        "A second Accept is obeyed.",
        cell(AGENT, S.AWAIT_FORMED, Accept, (S.AWAIT_FORMED, _accept_again)),
        "joining/second-accept",
    ),
    _mutant(
        "second-accept-ignored",
        "A second Accept is ignored.",
        cell(AGENT, S.AWAIT_FORMED, Accept),
        "joining/second-accept",
    ),
    _mutant(
        "formed-unasked",
        "WorldFormed is obeyed without an Accept.",
        cell(AGENT, S.AWAIT_ACCEPT, WorldFormed, (S.SUPERVISING, _formed_unasked)),
        "joining/formed-for-an-answer",
    ),
    _mutant(
        "formed-ignored",
        "WorldFormed before Accept is ignored.",
        cell(AGENT, S.AWAIT_ACCEPT, WorldFormed),
        "joining/formed-for-an-answer",
    ),
    _mutant(
        "hello-ignored",
        "A Hello that comes in is ignored.",
        cell(AGENT, S.AWAIT_ACCEPT, Hello),
        "joining/hello-for-an-answer",
    ),
    _mutant(
        "report-ignored",
        "A RankExited that comes in before the world is formed is ignored.",
        cell(AGENT, S.AWAIT_FORMED, RankExited),
        "joining/report-for-the-world",
    ),
    _mutant(
        "reject-late-ignored",
        "A Reject after Accept is ignored.",
        cell(AGENT, S.AWAIT_FORMED, Reject),
        "joining/late-reject",
    ),
    _mutant(
        "reject-retried",
        "A Reject leads to another dial.",
        cell(AGENT, S.AWAIT_ACCEPT, Reject, (S.DIALING, _redials)),
        "joining/rejected",
    ),
    _mutant(
        "reject-well",
        "A Reject is a good end.",
        cell(AGENT, S.AWAIT_ACCEPT, Reject, (S.DONE, _ends_well)),
        "joining/rejected",
    ),
    _mutant(
        "any-ranks",
        "An Accept with another number of ranks than devices is taken.",
        together(
            put(joining, "_accept_fault", _any_ranks),
            acting(AGENT, joining.admitted, _cut_to_devices(joining.admitted)),
        ),
        "joining/too-few-ranks",
        "joining/no-ranks",
        "joining/too-many-ranks",
        "joining/wrong-number-at-once",
    ),
    _mutant(
        "more-ranks",
        "An Accept with more ranks than devices is taken.",
        together(
            put(joining, "_accept_fault", _spare_ranks),
            acting(AGENT, joining.admitted, _cut_to_devices(joining.admitted)),
        ),
        "joining/too-many-ranks",
        "joining/wrong-number-at-once",
    ),
    _mutant(
        "no-salt",
        "An open Accept without a salt is taken.",
        together(
            put(joining, "_accept_fault", _no_salt), acting(AGENT, joining.admitted, _open_salt)
        ),
        "joining/no-salt",
    ),
    _mutant(
        "given-salt",
        "The salt of Accept counts, also where one is held.",
        acting(AGENT, joining.admitted, _given_salt),
        "joining/another-salt",
    ),
    _mutant(
        "abort-early-ignored",
        "An Abort before the world is formed is ignored.",
        cell(AGENT, S.AWAIT_FORMED, Abort),
        "joining/aborted",
    ),
    _mutant(
        "end-early-ignored",
        "The end of the connection after Accept is not noticed.",
        cell(AGENT, S.AWAIT_FORMED, EndOfStream),
        "joining/end-before-the-world",
        "joining/end-in-the-header-of-the-world",
        "joining/end-right-behind-accept",
    ),
    _mutant(
        "break-early-ignored",
        "A reset of the connection after Accept is not noticed.",
        cell(AGENT, S.AWAIT_FORMED, LinkBroken),
        "joining/reset-before-the-world",
    ),
    _mutant(
        "garbled-early-ignored",
        "A payload that cannot be decoded is ignored before ranks run.",
        _undecoded(S.AWAIT_FORMED),
        "joining/world-that-is-no-message",
    ),
    _mutant(
        "garbled-answer-ignored",
        "An answer to Hello that cannot be read is ignored.",
        _undecoded(S.AWAIT_ACCEPT),
        "joining/answer-that-is-no-message",
        "payload/u32-of-nine-bytes",
        "payload/message-*",
        "payload/marker-254",
        "payload/marker-255",
        "payload/not-utf-8",
        "payload/surrogate",
        "payload/option-2",
        "payload/empty-payload",
        "payload/last-field-missing",
        "payload/cut-in-number",
        "payload/string-one-too-long",
        "payload/string-of-2-40",
        "payload/ranks-of-2-40",
    ),
    _mutant(
        "spawns-early",
        "Ranks start with Accept.",
        SPAWNS_EARLY,
        "joining/nothing-before-the-world",
        "joining/second-accept",
        "joining/late-reject",
        "joining/hello-for-the-world",
        "joining/report-for-the-world",
        "joining/world-that-is-no-message",
        "joining/world-that-drips",
        "joining/no-world",
        "joining/aborted",
        "spawning/relay",
    ),
    # -- supervising
    _mutant(
        "no-relay",
        "A relay is not started.",
        put(AgentContext, "relays", property(lambda ctx: 0)),
        "spawning/relay",
    ),
    _mutant(
        "one-rank",
        "Only the first rank is started.",
        acting(AGENT, supervising.formed, _one_rank),
        "spawning/one-rank-for-each-device",
    ),
    _mutant(
        "formed-again",
        "A second WorldFormed tears the host down.",
        cell(AGENT, S.SUPERVISING, WorldFormed, (S.SUPERVISING, _again)),
        "supervising/second-world-formed",
    ),
    _mutant(
        "strange-fatal",
        "A message that means nothing while ranks run tears the host down.",
        acting(AGENT, supervising.tell_strange, _strange),
        "supervising/another-accept",
        "supervising/another-rank-exited",
    ),
    _mutant(
        "garbled-fatal",
        "A payload that cannot be decoded tears the host down.",
        asking(AGENT, supervising.only_payload, _strict_payload),
        "supervising/undecodable",
        "payload/running-*",
        "supervising/empty-payload",
    ),
    _mutant(
        "bad-tag-ignored",
        "A frame with a wrong tag is ignored while ranks run.",
        asking(AGENT, supervising.only_payload, _any_bytes),
        "teardown/frame-with-wrong-tag",
        "framing/tag-before-payload",
    ),
    _mutant(
        "abort-ignored",
        "An Abort is ignored while ranks run.",
        cell(AGENT, S.SUPERVISING, Abort),
        "teardown/abort",
        "teardown/grace",
        "teardown/deaf-rank",
        "teardown/abort-while-starting",
        "teardown/abort-is-reported",
        "wires/abort-in-the-wire",
    ),
    _mutant(
        "abort-unreported",
        "After an Abort nothing is reported.",
        acting(AGENT, supervising.aborted, _abort_and_go),
        "teardown/abort-is-reported",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "end-ignored",
        "The end of the stream is ignored while ranks run.",
        cell(AGENT, S.SUPERVISING, EndOfStream, (S.SUPERVISING, _silent_lost)),
        "teardown/stream-ends",
        "teardown/stream-half-ends",
        "teardown/code-after-a-lost-connection",
    ),
    _mutant(
        "break-ignored",
        "A reset is ignored while ranks run.",
        cell(AGENT, S.SUPERVISING, LinkBroken, (S.SUPERVISING, _silent_lost)),
        "teardown/reset",
    ),
    _mutant(
        "relay-death-ignored",
        "The relay's death is ignored.",
        acting(AGENT, supervising.child_exited, _relay_code(ok=True)),
        "supervising/relay-fails",
        "supervising/relay-is-killed",
    ),
    _mutant(
        "relay-end-fatal",
        "A relay that ends well tears the host down.",
        acting(AGENT, supervising.child_exited, _relay_code(ok=False)),
        "supervising/relay-ends-well",
        "supervising/relay-is-not-reported",
    ),
    _mutant(
        "rank-failure-fatal",
        "A rank that fails takes the others along.",
        acting(AGENT, supervising.child_exited, _failed_rank),
        "supervising/others-run-on",
        "supervising/all-at-a-time",
    ),
    _mutant(
        "never-closes",
        "The connection stays open when all ranks have ended.",
        acting(
            AGENT,
            supervising.finish_well,
            without(supervising.finish_well, fx.CloseLink, fx.Finish),
        ),
        "supervising/closes-and-ends",
        "messages/only-hello-and-report",
        "supervising/each-rank-once",
        "supervising/all-at-a-time",
        "supervising/abort-after-the-last",
        "supervising/close-after-the-last",
        "supervising/degraded",
    ),
    _mutant(
        "degraded-fatal",
        "A rank that failed makes the agent fail.",
        acting(AGENT, supervising.finish_well, _degraded),
        "supervising/degraded",
    ),
    _mutant(
        "torn-down-well",
        "A host that was torn down is a good end.",
        acting(AGENT, supervising.finish_ill, _torn_down_well),
        "teardown/abort",
        "supervising/relay-fails",
        "supervising/relay-is-killed",
        "teardown/stream-ends",
        "teardown/stream-half-ends",
        "teardown/reset",
        "teardown/frame-*",
        "teardown/code-after-a-lost-connection",
        "teardown/sigterm",
        "teardown/sigint",
        "teardown/sighup",
        "teardown/abort-while-starting",
    ),
    _mutant(
        "stop-ignored",
        "SIGTERM is ignored while ranks run.",
        cell(AGENT, S.SUPERVISING, StopRequested),
        "teardown/sigterm",
        "teardown/sigint",
        "teardown/sighup",
        "teardown/second-signal",
    ),
    _mutant(
        "no-kill",
        "Children that ignore SIGTERM are left alone.",
        put(supervising, "_force", lambda grace, now: fx.StopChildren(deadline=now + 1000)),
        "teardown/deaf-rank",
    ),
    _mutant(
        "no-hurry",
        "A second SIGTERM changes nothing.",
        acting(AGENT, supervising.hurry, nothing),
        "teardown/second-signal",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "no-grace",
        "Children are killed at once.",
        put(supervising, "_force", lambda grace, now: fx.KillChildren()),
        "teardown/grace",
        verdict=Verdict.NON_STRICT,
    ),
)
