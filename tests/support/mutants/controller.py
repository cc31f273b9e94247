"""Faults of a controller, by the phase in which they show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from joinproto import effects as fx
from joinproto.conformance.verdicts import Verdict
from joinproto.connection import CONTROLLER, ControllerConnection
from joinproto.inputs import EndOfStream, Expired, LinkBroken, Settled, StopRequested
from joinproto.limits import Timer
from joinproto.machines import controller as link
from joinproto.machines.controller import ControllerState as S
from joinproto.machines.window import WINDOW, admission, ending, forming
from joinproto.machines.window import WindowState as W
from joinproto.machines.window import context as known
from joinproto.machines.window.config import Check, WindowConfig
from joinproto.machines.window.context import References, WindowContext
from joinproto.messages import Accept, Hello, RankExited
from joinproto.record import replace
from joinproto.runtime import artifacts
from joinproto.runtime.board import EXIT_CODES
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
    put,
    table,
    together,
)

Effects = tuple[Any, ...]


def _never(ctx: Any, given: Any, now: float) -> bool:
    return False


def _always(ctx: Any, given: Any, now: float) -> bool:
    return True


# -- who is admitted --------------------------------------------------------------------------

_REFUSAL = admission.refusal
_DISAGREEMENT = admission._disagreement


def _lenient(word: str) -> Change:
    """Hosts that are refused with this word are admitted, unless something else is wrong."""

    def refusal(ctx: Any, hello: Hello) -> str | None:
        reason = _REFUSAL(ctx, hello)
        return None if reason is not None and word in reason else reason

    return put(admission, "refusal", refusal)


def _strict(fault: Callable[[Any, Hello], bool]) -> Change:
    """Some more hosts are refused."""
    return put(
        admission,
        "refusal",
        lambda ctx, hello: "no" if fault(ctx, hello) else _REFUSAL(ctx, hello),
    )


def _unchecked(*checks: Check) -> Change:
    def disagreement(ctx: Any, hello: Hello) -> str | None:
        left = replace(ctx.config, checks=ctx.config.checks - set(checks))
        return _DISAGREEMENT(replace(ctx, config=left), hello)

    return put(admission, "_disagreement", disagreement)


def _any_configured(ctx: Any, hello: Hello) -> str | None:
    return _DISAGREEMENT(replace(ctx, config=replace(ctx.config, dataset_sig=None)), hello)


def _any_first(ctx: Any, hello: Hello) -> str | None:
    return _DISAGREEMENT(replace(ctx, references=replace(ctx.references, dataset_sig=None)), hello)


def _zeros_are_none(ctx: Any, hello: Hello) -> str | None:
    return None if not any(hello.dataset_sig) else _DISAGREEMENT(ctx, hello)


def _keeps_refused(ctx: Any, given: Any, now: float) -> Any:
    """What a refused Hello said is what the others must agree with."""
    ctx, effects = admission.refuse(ctx, given, now)
    if ctx.references.wire is None:
        ctx = replace(
            ctx,
            references=References(wire=given.wire, dataset_sig=given.hello.dataset_sig),
        )
    return ctx, effects


def _keeps_lost(ctx: Any, connection: int, now: float) -> Any:
    """What a lost member said is still what the others must agree with."""
    return replace(_WITHOUT(ctx, connection, now), references=ctx.references)


def _keeps_name(ctx: Any, connection: int, now: float) -> Any:
    return replace(_WITHOUT(ctx, connection, now), hosts=ctx.hosts)


def _keeps_ranks(ctx: Any, given: Any, now: float) -> Any:
    """A lost member's ranks still count."""
    before = ctx.joined_ranks
    ctx, effects = forming.retract(ctx, given, now)
    return replace(ctx, joined_ranks=before, world_size=max(ctx.world_size, before)), effects


_WITHOUT = known.without_member


def _counts_refused(ctx: Any, given: Any, now: float) -> Any:
    """A refused host counts towards the quorum."""
    ctx, effects = admission.refuse(ctx, given, now)
    count = len(given.hello.local_devices)
    return replace(ctx, joined_ranks=ctx.joined_ranks + count, world_size=ctx.world_size + count), (
        *effects,
        fx.Settle(),
    )


# -- Accept -----------------------------------------------------------------------------------


def _ranks(by: Callable[[Any, tuple[int, ...]], tuple[int, ...]]) -> Change:
    """Other ranks in Accept and in the window."""

    def admit(ctx: Any, given: Any, now: float) -> Any:
        before = ctx
        ctx, effects = admission.admit(ctx, given, now)
        place = ctx.places[given.connection]
        member = ctx.members[place]
        ranks = by(before, member.ranks)
        members = (
            *ctx.members[:place],
            replace(member, ranks=ranks),
            *ctx.members[place + 1 :],
        )
        return replace(ctx, members=members), tuple(
            replace(each, ranks=ranks) if isinstance(each, fx.AdmitHost) else each
            for each in effects
        )

    return acting(WINDOW, admission.admit, admit)


def _wait(by: Callable[[Any, int], int]) -> Change:
    """Another formation wait in Accept."""

    def edit(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
        return tuple(
            replace(each, formation_wait_secs=by(ctx, each.formation_wait_secs))
            if isinstance(each, fx.AdmitHost)
            else each
            for each in effects
        )

    return acting(WINDOW, admission.admit, after(admission.admit, edit))


def _accept(edit: Callable[[Any, Accept], Accept]) -> Change:
    def edited(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
        return tuple(
            fx.Send(message=edit(ctx, each.message)) if isinstance(each, fx.Send) else each
            for each in effects
        )

    return acting(CONTROLLER, link._admit, after(link._admit, edited))


def _salted(by: Callable[[Any, str | None], str | None]) -> Change:
    return _accept(
        lambda ctx, accept: Accept(
            ranks=accept.ranks,
            salt_hex=by(ctx, accept.salt_hex),
            formation_wait_secs=accept.formation_wait_secs,
        )
    )


def _same_key(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
    """The session salt is not taken into use."""
    return tuple(each for each in effects if not isinstance(each, fx.UseKey))


# -- the window -------------------------------------------------------------------------------


def _window_property(name: str, by: Callable[[Any], Any]) -> Change:
    return put(WindowContext, name, property(by))


def _config_property(name: str, by: Callable[[Any], Any]) -> Change:
    return put(WindowConfig, name, property(by))


def _target_as_quorum(ctx: Any) -> bool:
    return bool(ctx.joined_ranks >= ctx.config.min_ranks and ctx.whole)


def _below_quorum(ctx: Any) -> bool:
    return bool(ctx.joined_ranks and ctx.whole)


def _with_hole(ctx: Any) -> bool:
    return bool(ctx.joined_ranks >= ctx.config.min_ranks)


def _complete_with_hole(ctx: Any) -> bool:
    target = ctx.config.target_ranks
    return target is not None and ctx.joined_ranks >= target


def _formed_only(by: Callable[[Any, Any], bool]) -> Change:
    """WorldFormed goes to those members alone for whom `by` (envelope, context) holds."""
    return acting(CONTROLLER, link._form, _form_if(by))


def _form_if(by: Callable[[Any, Any], bool]) -> Act:
    def form(ctx: Any, given: Any, now: float) -> Any:
        return link._form(ctx, given, now) if by(ctx, given) else (ctx, ())

    return form


def _form_effects(edit: Callable[[Effects], Effects]) -> Change:
    return acting(
        CONTROLLER,
        link._form,
        after(link._form, lambda ctx, given, now, effects: edit(effects)),
    )


def _artifact(edit: Callable[[dict[str, Any]], Any]) -> Change:
    """Envelopes (which have a worker) and relay specs (which have not) with other content."""
    write = artifacts.write_hex

    def changed(value: Any) -> str:
        edit(value)
        return write(value)

    return put(artifacts, "write_hex", changed)


def _envelope(edit: Callable[[dict[str, Any]], Any]) -> Change:
    return _artifact(lambda value: edit(value) if "worker" in value else None)


# -- links ------------------------------------------------------------------------------------


def _later(timer: Timer, seconds: float, act: Act) -> Change:
    """A deadline of a connection after so many seconds; 0: never."""

    def edited(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
        left = tuple(
            each for each in effects if not isinstance(each, fx.SetTimer) or each.timer is not timer
        )
        return (*left, fx.SetTimer(timer=timer, at=now + seconds)) if seconds else left

    return acting(CONTROLLER, act, after(act, edited))


def _reject_and_stay(ctx: Any, reason: str, now: float) -> Any:
    """The connection stays open behind a Reject."""
    ctx, effects = _REJECT(ctx, reason, now)
    return ctx, tuple(each for each in effects if not isinstance(each, fx.EndSending | fx.SetTimer))


_REJECT = link._reject


def _form_with_relay(ctx: Any, given: Any, now: float) -> Any:
    return link._form(ctx, replace(given, relay_spec_hex=given.relay_spec_hex or ""), now)


def _magic_in_one_piece() -> Change:
    receive = ControllerConnection.receive_data

    def received(self: Any, data: bytes, now: float) -> list[Any]:
        return receive(self, data.ljust(4, b"\0") if self.channel is None else data, now)

    return put(ControllerConnection, "receive_data", received)


def _dismissed(ctx: Any, given: Any, now: float) -> Any:
    return link._turn_away(ctx, "dismissed")


def _answered(ctx: Any, given: Any, now: float) -> Any:
    return link._reject(ctx, "this is no channel", now)


def _kept_open(ctx: Any, given: Any, now: float) -> Any:
    return ctx, ()


def _closed(ctx: Any, given: Any, now: float) -> Any:
    return link._lost(ctx, "odd")


def _any_rank(ctx: Any, given: Any, now: float) -> bool:
    return given.rank not in ctx.exited


def _twice(ctx: Any, given: Any, now: float) -> bool:
    return given.rank in ctx.ranks


def _reported_early(ctx: Any, given: RankExited, now: float) -> Any:
    return link._rank_exited(ctx, given, now)


def _any_failure(ctx: Any, given: Any, now: float) -> bool:
    return given.code != 0 and not ending.known(ctx, given, now)


def _any_loss(ctx: Any, given: Any, now: float) -> bool:
    member = ctx.member(given.connection)
    return member is not None and ending._running(ctx, member) > 0


def _all_lost(ctx: Any, member: Any) -> int:
    """The end of a member's connection is always a loss."""
    return len(member.ranks) if ctx.formed else 0


def _never_lost(ctx: Any, member: Any) -> int:
    return 0


def _no_abort(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
    return tuple(each for each in effects if not isinstance(each, fx.AbortAll))


def _late_admitted(ctx: Any, given: Any, now: float) -> Any:
    ctx, effects = admission.admit(ctx, given, now)
    return ctx, tuple(each for each in effects if not isinstance(each, fx.Settle))


def _late_dismissed(ctx: Any, given: Any, now: float) -> Any:
    return ctx, (fx.DismissHost(connection=given.connection, reason="late"),)


def _exit(**codes: int) -> Change:
    names = {name.replace("_", "-"): code for name, code in codes.items()}
    return lambda: patch.dict(EXIT_CODES, names)


OVERTIME_IGNORED = table(
    WINDOW,
    [
        rule
        for rule in WINDOW.rules
        if not (
            rule.source is W.OVERTIME
            and rule.on is Settled
            and rule.when is forming.quorum_by_clock
        )
    ],
)
CAP_IGNORED = cell(WINDOW, W.OVERTIME, Expired)
STRANGE_FATAL = table(
    CONTROLLER,
    [
        Rule(source=rule.source, on=rule.on, when=rule.when, target=S.CLOSED, act=_closed)
        if rule.act is link._strange and rule.on is not RankExited
        else rule
        for rule in CONTROLLER.rules
    ],
)


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
        role="controller",
        what=what,
        change=change,
        named=named,
        related=related,
        verdict=verdict,
    )


CONTROLLER_MUTANTS = (
    # -- channel and frames
    _mutant(
        "magic-in-one-piece", "The channel magic is only known in one piece.", _magic_in_one_piece()
    ),
    _mutant(
        "other-channel-open",
        "A dial of a channel that is not served stays open.",
        acting(CONTROLLER, link._not_join, _kept_open),
    ),
    _mutant(
        "other-channel-answered",
        "A dial of a channel that is not served gets an answer.",
        acting(CONTROLLER, link._not_join, _answered),
    ),
    _mutant("any-magic", "The magic of a frame is not looked at.", wire.ANY_MAGIC),
    _mutant("any-version", "A frame of an unknown version is obeyed.", wire.ANY_VERSION),
    _mutant("mixed-versions", "A frame of another version than the first is obeyed.", wire.MIXED),
    _mutant("any-kind", "A frame of a kind that there is not is obeyed.", wire.ANY_KIND),
    _mutant("other-kind", "A frame of another channel's kind is obeyed.", wire.OTHER_KIND),
    _mutant("cap-above", "One byte more than 16 MiB is waited for.", wire.CAP_ABOVE),
    _mutant("cap-below", "A payload of exactly 16 MiB is refused.", wire.CAP_BELOW),
    _mutant("late-length", "Too long a payload is refused when some of it is there.", wire.LATE),
    _mutant("one-piece", "A frame is read only when it comes in one piece.", wire.ONE_PIECE),
    _mutant("one-frame", "Of frames that come at once only the first is read.", wire.ONE_FRAME),
    _mutant("short-tag", "The last byte of a tag is not compared.", wire.SHORT_TAG),
    _mutant("untagged-hello", "The tag of a Hello is not checked.", wire.untagged(0)),
    _mutant("untagged-report", "The tag of a report is not checked.", wire.untagged(4)),
    _mutant("zero-key", "A frame tagged with zeros is taken at all times.", wire.ZERO_KEY),
    _mutant(
        "bad-tag-answered",
        "A first frame with a wrong tag gets a Reject.",
        asking(CONTROLLER, link._answerable, _always),
    ),
    _mutant(
        "garbled-unanswered",
        "A first frame that cannot be decoded gets no Reject.",
        asking(CONTROLLER, link._answerable, _never),
    ),
    _mutant(
        "no-hello-unanswered",
        "A first message that is no Hello gets no Reject.",
        acting(CONTROLLER, link._not_hello, _dismissed),
    ),
    _mutant(
        "big-endian", "A number behind marker 252 is read the wrong way round.", wire.BIG_ENDIAN
    ),
    _mutant("any-marker", "Markers 253 to 255 are taken where they must not be.", wire.ANY_MARKER),
    _mutant("any-option", "An option byte of 2 is taken for 1.", wire.ANY_OPTION),
    _mutant("any-text", "A string that is not UTF-8 is taken.", wire.ANY_TEXT),
    _mutant(
        "characters-read", "The length of a string is taken as characters.", wire.CHARACTERS_READ
    ),
    _mutant("long-text", "A string longer than its payload is taken.", wire.LONG_TEXT),
    _mutant("any-count", "A sequence longer than its payload is taken.", wire.ANY_COUNT),
    _mutant("no-empty-text", "An empty string is refused.", wire.NO_EMPTY_TEXT),
    _mutant("short-payload", "A payload that ends early is filled with zeros.", wire.SHORT_PAYLOAD),
    _mutant(
        "octets-as-numbers", "Device numbers are read as varints.", wire.OCTETS_READ_AS_NUMBERS
    ),
    _mutant("any-number", "A message number that is not is taken for Hello.", wire.any_number(0)),
    # -- what is said
    _mutant(
        "characters-written", "Strings go out with a length in characters.", wire.CHARACTERS_WRITTEN
    ),
    _mutant(
        "trailing-accept", "A byte stands behind the last field of an Accept.", wire.trailing(1)
    ),
    _mutant(
        "trailing-reject", "A byte stands behind the last field of a Reject.", wire.trailing(2)
    ),
    _mutant(
        "trailing-formed", "A byte stands behind the last field of a WorldFormed.", wire.trailing(3)
    ),
    _mutant("trailing-abort", "A byte stands behind the last field of an Abort.", wire.trailing(5)),
    _mutant(
        "long-accept", "Numbers of an Accept take more bytes than they need.", wire.long_form(1)
    ),
    _mutant(
        "answers-in-oldest",
        "Every answer is in the oldest version.",
        put(ControllerConnection, "wire", property(lambda self: 2)),
    ),
    # -- admission
    _mutant("hello-never-due", "A Hello has no deadline.", _later(Timer.HELLO, 0, link._routed)),
    _mutant(
        "hello-unscaled",
        "The deadline for Hello is not scaled.",
        _later(Timer.HELLO, 10, link._routed),
    ),
    _mutant(
        "hello-early",
        "The deadline for Hello comes in half its time.",
        _later(Timer.HELLO, 0.5, link._routed),
    ),
    _mutant(
        "hello-put-off",
        "Bytes that come in put off the deadline for Hello.",
        wire.put_off(Timer.HELLO, 1.0),
    ),
    _mutant(
        "route-never-due",
        "The channel magic has no deadline.",
        _later(Timer.ROUTE, 0, link._opened),
    ),
    _mutant(
        "route-unscaled",
        "The deadline for the channel magic is not scaled.",
        _later(Timer.ROUTE, 5, link._opened),
    ),
    _mutant(
        "route-early",
        "The deadline for the channel magic is not rounded up.",
        _later(Timer.ROUTE, 0.5, link._opened),
    ),
    _mutant(
        "route-put-off",
        "Bytes that come in put off the deadline for the magic.",
        wire.put_off(Timer.ROUTE, 1.0, ControllerConnection),
    ),
    _mutant("blank-host", "A host with a blank name is admitted.", _lenient("host name is blank")),
    _mutant(
        "no-devices", "A host without devices is admitted.", _lenient("no devices are offered")
    ),
    _mutant(
        "many-devices",
        "A host with more than 256 devices is admitted.",
        put(admission, "MAX_DEVICES", 65536),
    ),
    _mutant(
        "few-devices", "A host with 256 devices is refused.", put(admission, "MAX_DEVICES", 255)
    ),
    _mutant(
        "device-twice",
        "A host that offers a device twice is admitted.",
        _lenient("is offered twice"),
    ),
    _mutant(
        "host-twice", "A host whose name a member has is admitted.", _lenient("has joined already")
    ),
    _mutant(
        "other-dataset",
        "The dataset signature of the first member is not looked at.",
        put(admission, "_disagreement", _any_first),
    ),
    _mutant(
        "other-configured",
        "The configured dataset signature is not looked at.",
        put(admission, "_disagreement", _any_configured),
    ),
    _mutant(
        "zero-dataset",
        "A dataset signature of zeros agrees with all.",
        put(admission, "_disagreement", _zeros_are_none),
    ),
    _mutant(
        "refused-dataset",
        "A refused Hello fixes the dataset signature.",
        acting(WINDOW, admission.refuse, _keeps_refused),
    ),
    _mutant(
        "lost-dataset",
        "A lost member's Hello still fixes the dataset signature.",
        put(forming, "without_member", _keeps_lost),
    ),
    _mutant(
        "other-vendor",
        "The GPU vendor is not looked at.",
        _unchecked(Check.VENDOR),
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "other-run",
        "The run id is not looked at.",
        _unchecked(Check.RUN_ID),
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "other-nccl",
        "The NCCL version is not looked at.",
        _unchecked(Check.NCCL),
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "other-model",
        "The model signature is not looked at.",
        _unchecked(Check.MODEL_SIG),
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "missing-run",
        "A host that leaves out the run id that another has is refused.",
        _strict(lambda ctx, hello: hello.run_id is None and Check.RUN_ID in ctx.references.agreed),
    ),
    _mutant(
        "labels-counted",
        "A host with other labels than devices is refused.",
        _strict(lambda ctx, hello: len(hello.gpus) not in (0, len(hello.local_devices))),
    ),
    _mutant(
        "labels-needed",
        "A host without labels is refused where it has devices above 7.",
        _strict(lambda ctx, hello: not hello.gpus and max(hello.local_devices, default=0) > 7),
    ),
    _mutant(
        "lost-name",
        "The name of a lost member stays taken.",
        put(forming, "without_member", _keeps_name),
    ),
    _mutant(
        "lost-ranks",
        "The ranks of a lost member still count.",
        acting(WINDOW, forming.retract, _keeps_ranks),
    ),
    _mutant(
        "lost-place",
        "The ranks of a lost member are given to nobody.",
        put(admission, "_vacancy", lambda ctx, hello: None),
    ),
    _mutant(
        "refused-counts",
        "A refused host counts towards the quorum.",
        acting(WINDOW, admission.refuse, _counts_refused),
    ),
    _mutant(
        "reject-open",
        "The connection stays open after a Reject.",
        put(link, "_reject", _reject_and_stay),
    ),
    _mutant(
        "mixed-world",
        "Hosts of both versions share a world.",
        asking(WINDOW, admission.wrong_wire, _never),
        verdict=Verdict.NON_STRICT,
    ),
    # -- Accept
    _mutant(
        "ranks-from-one",
        "Ranks are counted from 1.",
        _ranks(lambda ctx, ranks: tuple(rank + 1 for rank in ranks)),
    ),
    _mutant(
        "ranks-with-gap",
        "A rank is left out between two hosts.",
        _ranks(lambda ctx, ranks: tuple(rank + len(ctx.members) for rank in ranks)),
    ),
    _mutant(
        "ranks-given-twice",
        "Every host gets ranks from 0.",
        _ranks(lambda ctx, ranks: tuple(range(len(ranks)))),
    ),
    _mutant(
        "ranks-backwards",
        "A host gets its ranks from the last to the first.",
        _ranks(lambda ctx, ranks: ranks[::-1]),
    ),
    _mutant(
        "rank-missing",
        "A host gets one rank less than it has devices.",
        _ranks(lambda ctx, ranks: ranks[:-1] if len(ranks) > 1 else ranks),
    ),
    _mutant("no-salt", "Accept has no salt under open admission.", _salted(lambda ctx, salt: None)),
    _mutant(
        "salt-shown",
        "Accept has the salt under pre-shared admission.",
        _salted(lambda ctx, salt: ctx.admission.salt.hex()),
    ),
    _mutant(
        "wait-unscaled",
        "The formation wait in Accept is not scaled.",
        _wait(lambda ctx, wait: int(wait / ctx.config.scale)),
    ),
    _mutant(
        "wait-whole",
        "The formation wait in Accept is the whole cap.",
        _wait(lambda ctx, wait: int(ctx.config.cap)),
    ),
    _mutant("wait-zero", "The formation wait in Accept is 0.", _wait(lambda ctx, wait: 0)),
    _mutant(
        "join-key-kept",
        "WorldFormed and Abort are tagged with the join key.",
        acting(CONTROLLER, link._admit, after(link._admit, _same_key)),
    ),
    # -- forming
    _mutant(
        "below-quorum",
        "A world forms below the quorum.",
        _window_property("quorate", _below_quorum),
    ),
    _mutant(
        "at-quorum",
        "A world forms at the quorum, without waiting.",
        _window_property("complete", _target_as_quorum),
    ),
    _mutant(
        "target-ignored",
        "A world does not form at its target.",
        _window_property("complete", lambda ctx: False),
    ),
    _mutant(
        "join-timeout-ignored",
        "A world does not form at the join timeout.",
        asking(WINDOW, forming.quorum_by_clock, _never),
    ),
    _mutant(
        "join-timeout-unscaled",
        "The join timeout is not scaled.",
        _config_property("window", lambda self: self.join_timeout),
    ),
    _mutant(
        "cap-unscaled",
        "The cap is not scaled.",
        _config_property("cap", lambda self: self.max_join_timeout or 600.0),
    ),
    _mutant(
        "overtime-ignored", "Who comes after the join timeout forms no world.", OVERTIME_IGNORED
    ),
    _mutant("cap-ignored", "A window without quorum never fails.", CAP_IGNORED),
    _mutant(
        "cap-silent",
        "A window that fails sends no Abort.",
        together(acting(WINDOW, forming.cap_reached, after(forming.cap_reached, _no_abort))),
    ),
    _mutant("cap-well", "A window that failed is a good end.", _exit(window_failed=0)),
    _mutant(
        "hole-formed",
        "A world forms with a hole.",
        together(
            _window_property("quorate", _with_hole),
            _window_property("complete", _complete_with_hole),
        ),
    ),
    _mutant(
        "formed-twice",
        "WorldFormed is sent twice.",
        _form_effects(lambda effects: (effects[0], *effects)),
    ),
    _mutant(
        "formed-to-one",
        "WorldFormed is sent to the first member alone.",
        _formed_only(lambda ctx, given: 0 in ctx.ranks),
    ),
    _mutant(
        "world-size",
        "The envelope's world size is that of the host.",
        _envelope(lambda value: value.update(world_size=len(value["worker"]["ranks"]))),
    ),
    _mutant(
        "num-workers",
        "The envelope's number of hosts is always 1.",
        _envelope(lambda value: value.update(num_workers=1)),
    ),
    _mutant(
        "envelope-host",
        "The envelope's worker has a name of its own.",
        _envelope(lambda value: value["worker"].update(host="worker")),
    ),
    _mutant(
        "envelope-ranks",
        "The envelope's worker has all ranks of the world.",
        _envelope(lambda value: value["worker"].update(ranks=list(range(value["world_size"])))),
    ),
    _mutant(
        "envelope-devices",
        "The envelope's worker has devices from 0.",
        _envelope(
            lambda value: value["worker"].update(
                local_devices=list(range(len(value["worker"]["ranks"])))
            )
        ),
    ),
    _mutant(
        "envelope-salt", "The envelope has no salt.", _envelope(lambda value: value.pop("salt"))
    ),
    _mutant(
        "relay-unasked",
        "A relay spec is sent where none is to run.",
        acting(CONTROLLER, link._form, _form_with_relay),
    ),
    _mutant(
        "relay-ranks",
        "The relay spec has no ranks.",
        _artifact(lambda value: value.pop("ranks", None)),
    ),
    _mutant(
        "late-admitted",
        "A host is admitted after the world has formed.",
        acting(WINDOW, admission.refuse_late, _late_admitted),
    ),
    _mutant(
        "late-dismissed",
        "A host that comes too late is dismissed without a word.",
        acting(WINDOW, admission.refuse_late, _late_dismissed),
        verdict=Verdict.NON_STRICT,
    ),
    # -- the run
    _mutant(
        "closes-first",
        "The connection is closed behind WorldFormed.",
        _form_effects(lambda effects: (*effects, fx.CloseLink())),
    ),
    _mutant(
        "half-closes-first",
        "The sending side is closed behind WorldFormed.",
        _form_effects(lambda effects: (*effects, fx.EndSending())),
    ),
    _mutant(
        "first-end-ends",
        "The run is over when the first member has left.",
        asking(WINDOW, ending.link_ends_run, _always),
    ),
    _mutant(
        "failure-aborts",
        "A rank that failed ends the run.",
        asking(WINDOW, ending.report_too_bad, _any_failure),
    ),
    _mutant(
        "loss-aborts", "A lost host ends the run.", asking(WINDOW, ending.link_too_bad, _any_loss)
    ),
    _mutant(
        "end-is-loss",
        "The end of a member's connection is always a loss.",
        put(ending, "_running", _all_lost),
    ),
    _mutant(
        "loss-is-end", "A host that is lost is a good end.", put(ending, "_running", _never_lost)
    ),
    _mutant("failed-well", "Ranks that failed are a good end.", _exit(failed=0)),
    _mutant(
        "other-rank",
        "A report for a rank of another host is taken.",
        asking(CONTROLLER, link._news, _any_rank),
    ),
    _mutant(
        "report-early",
        "A report before the world has formed is taken.",
        cell(CONTROLLER, S.ADMITTED, RankExited, (S.ADMITTED, _reported_early)),
    ),
    _mutant(
        "strange-fatal",
        "A message from a member that means nothing ends its connection.",
        STRANGE_FATAL,
    ),
    _mutant(
        "garbled-fatal",
        "A payload from a member that cannot be decoded ends its connection.",
        asking(CONTROLLER, link._only_payload, _never),
    ),
    _mutant(
        "bad-frame-ignored",
        "A frame from a member that fails is ignored.",
        asking(CONTROLLER, link._only_payload, _always),
    ),
    _mutant(
        "end-ignored",
        "The end of a member's connection is not noticed.",
        cell(CONTROLLER, S.FORMED, EndOfStream),
    ),
    _mutant(
        "break-ignored",
        "A reset of a member's connection is not noticed.",
        cell(CONTROLLER, S.FORMED, LinkBroken),
    ),
    _mutant(
        "stop-silent",
        "SIGTERM sends no Abort.",
        acting(WINDOW, forming.stop, after(forming.stop, _no_abort)),
    ),
    _mutant(
        "stop-ignored",
        "SIGTERM is ignored once the world has formed.",
        cell(WINDOW, W.FORMED, StopRequested),
    ),
    _mutant(
        "abort-closes",
        "The connection is closed right behind an Abort.",
        acting(
            CONTROLLER,
            link._abort,
            after(link._abort, lambda ctx, given, now, effects: (*effects, fx.CloseLink())),
        ),
    ),
    _mutant(
        "abort-stays",
        "After an Abort a member is waited for without end.",
        _later(Timer.ABORT, 0, link._abort),
    ),
)
