"""Faults of a controller, by the phase in which they show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from joinproto import effects as fx
from joinproto.conformance.verdicts import Verdict
from joinproto.connection import ControllerConnection
from joinproto.errors import Stage
from joinproto.inputs import EndOfStream, Expired, Settled, Undecodable
from joinproto.limits import Timer
from joinproto.machines import controller as link
from joinproto.machines.controller import CONTROLLER
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
from joinproto.runtime.hexjson import write_hex
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
    without,
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
    configured = ctx.config.dataset_sig
    expected = ctx.references.dataset_sig if configured is None else configured
    if expected is not None and not any(hello.dataset_sig):
        hello = Hello(**{**vars(hello), "dataset_sig": expected})
    return _DISAGREEMENT(ctx, hello)


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
            fx.Send(message=edit(ctx, each.message))
            if isinstance(each, fx.Send) and isinstance(each.message, Accept)
            else each
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
    write = write_hex

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


def _stays(ctx: Any, given: Any, now: float) -> Any:
    return ctx, link._calm()


def _other_channel(act: Act) -> Change:
    """A dial of a channel that is not served is not closed."""
    return table(
        CONTROLLER,
        [
            Rule(source=rule.source, on=rule.on, target=S.REJECTING, act=act)
            if rule.act is link._not_join
            else rule
            for rule in CONTROLLER.rules
        ],
    )


def _closed(ctx: Any, given: Any, now: float) -> Any:
    return link._lost(ctx, "odd")


def _any_rank(ctx: Any, given: Any, now: float) -> bool:
    return given.rank not in ctx.exited


def _twice(ctx: Any, given: Any, now: float) -> bool:
    return given.rank in ctx.ranks


def _reported_early(ctx: Any, given: RankExited, now: float) -> Any:
    return link._rank_exited(ctx, given, now)


def _tag_or_payload(ctx: Any, given: Undecodable, now: float) -> bool:
    return given.error.stage in (Stage.PAYLOAD, Stage.TAG)


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


def silent(act: Act) -> Act:
    """`act` without its Abort."""
    return without(act, fx.AbortAll)


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
        "magic-in-one-piece",
        "The channel magic is only known in one piece.",
        _magic_in_one_piece(),
        "channel/magic-byte-by-byte",
        "channel/magic-in-halves",
        "channel/magic-cut-in-hello",
    ),
    _mutant(
        "other-channel-open",
        "A dial of a channel that is not served stays open.",
        _other_channel(_stays),
        "channel/tls",
        "channel/frame-magic",
        "channel/next-magic",
        "channel/swapped-magic",
        "channel/ssh",
        "channel/zeros",
        "channel/lower-case-get",
        "channel/garbage",
    ),
    _mutant(
        "other-channel-answered",
        "A dial of a channel that is not served gets an answer.",
        _other_channel(_answered),
        "channel/tls",
        "channel/frame-magic",
        "channel/next-magic",
        "channel/swapped-magic",
        "channel/ssh",
        "channel/zeros",
        "channel/lower-case-get",
        "channel/garbage",
        "channel/rendezvous",
        "channel/data",
        "channel/control",
    ),
    _mutant(
        "any-magic",
        "The magic of a frame is not looked at.",
        wire.ANY_MAGIC,
        "framing/bit-in-magic",
        "framing/channel-magic",
        "framing/zero-magic",
        "running/bad-magic",
    ),
    _mutant(
        "any-version",
        "A frame of an unknown version is obeyed.",
        wire.ANY_VERSION,
        "framing/version-1",
        "framing/version-*",
        "running/bad-version",
        "wires/wire-*",
    ),
    _mutant(
        "mixed-versions",
        "A frame of another version than the first is obeyed.",
        wire.MIXED,
        "wires/wire-2-behind-wire-4",
        "wires/wire-4-behind-wire-2",
    ),
    _mutant(
        "any-kind",
        "A frame of a kind that there is not is obeyed.",
        wire.ANY_KIND,
        "framing/kind-0",
        "framing/kind-*",
        "running/bad-kind",
    ),
    _mutant(
        "other-kind",
        "A frame of another channel's kind is obeyed.",
        wire.OTHER_KIND,
        "framing/kind-1-from-a-member",
        "admission/first-*",
        "framing/kind-2-from-a-member",
        "framing/kind-6-from-a-member",
    ),
    _mutant(
        "cap-above",
        "One byte more than 16 MiB is waited for.",
        wire.CAP_ABOVE,
        "framing/length-from-a-member",
        "running/bad-length",
    ),
    _mutant(
        "cap-below",
        "A payload of exactly 16 MiB is refused.",
        wire.CAP_BELOW,
        "framing/largest-payload-from-a-member",
    ),
    _mutant(
        "late-length",
        "Too long a payload is refused when some of it is there.",
        wire.LATE,
        "framing/length-from-a-member",
        "running/bad-length",
    ),
    _mutant(
        "one-piece",
        "A frame is read only when it comes in one piece.",
        wire.ONE_PIECE,
        "framing/byte-by-byte",
        "framing/header-then-payload",
        "framing/cut-elsewhere",
    ),
    _mutant(
        "one-frame",
        "Of frames that come at once only the first is read.",
        wire.ONE_FRAME,
        "framing/two-in-one-piece",
    ),
    _mutant(
        "short-tag",
        "The last byte of a tag is not compared.",
        wire.SHORT_TAG,
        "tags/last-bit",
        "admission/lost-by-a-bad-frame",
        "framing/tag-*",
        "framing/two-in-one-piece",
        "framing/cut-elsewhere",
        "running/bad-tag",
        "running/after-a-bad-frame",
        "tags/report-last-bit",
    ),
    _mutant(
        "untagged-hello",
        "The tag of a Hello is not checked.",
        wire.untagged(0),
        "tags/other-key",
        "admission/salt-on-loopback",
        "framing/tag-before-kind",
        "framing/tag-before-admission",
        "tags/last-bit",
        "tags/zero-tag",
        "tags/zero-key",
        "tags/hello-with-session-salt",
    ),
    _mutant(
        "untagged-report",
        "The tag of a report is not checked.",
        wire.untagged(4),
        "tags/report-last-bit",
        "admission/lost-by-a-bad-frame",
        "framing/tag-before-message",
        "framing/two-in-one-piece",
        "framing/cut-elsewhere",
        "running/bad-tag",
        "running/join-key",
        "running/after-a-bad-frame",
        "tags/report-with-join-key",
    ),
    _mutant(
        "zero-key",
        "A frame tagged with zeros is taken at all times.",
        wire.ZERO_KEY,
        "tags/report-with-join-key",
        "admission/salt-on-loopback",
        "running/join-key",
        "tags/zero-key",
    ),
    _mutant(
        "bad-tag-answered",
        "A first frame with a wrong tag gets a Reject.",
        asking(CONTROLLER, link._answerable, _always),
        "tags/other-key",
        "admission/salt-on-loopback",
        "framing/channel-magic",
        "framing/bit-in-magic",
        "framing/zero-magic",
        "framing/version-*",
        "framing/kind-*",
        "framing/length-*",
        "framing/tag-*",
        "framing/cut-in-payload",
        "framing/cut-behind-header",
        "tags/last-bit",
        "tags/zero-tag",
        "tags/zero-key",
        "tags/hello-with-session-salt",
        "wires/wire-*",
    ),
    _mutant(
        "garbled-unanswered",
        "A first frame that cannot be decoded gets no Reject.",
        asking(CONTROLLER, link._answerable, _never),
        "admission/undecodable",
        "admission/first-*",
        "payload/marker-*",
        "payload/number-*",
        "payload/no-utf-8",
        "payload/surrogate",
        "payload/overlong-utf-8",
        "payload/cut-utf-8",
        "payload/option-2",
        "payload/option-255",
        "payload/empty-payload",
        "payload/without-signature",
        "payload/last-byte-missing",
        "payload/last-byte-missing-wire-2",
        "payload/string-*",
        "payload/run-id-of-2-40",
        "payload/devices-2-32",
        "payload/devices-2-64",
        "payload/labels-2-32",
        "payload/labels-2-64",
        "wires/wire-4-without-options",
    ),
    _mutant(
        "no-hello-unanswered",
        "A first message that is no Hello gets no Reject.",
        acting(CONTROLLER, link._not_hello, _dismissed),
        "admission/first-accept",
        "admission/first-*",
    ),
    _mutant(
        "big-endian",
        "A number behind marker 252 is read the wrong way round.",
        wire.BIG_ENDIAN,
        "payload/length-70000",
        "payload/length-70000-wire-2",
    ),
    _mutant(
        "any-marker",
        "Markers 253 to 255 are taken where they must not be.",
        wire.ANY_MARKER,
        "payload/marker-253-for-a-u32",
        "payload/marker-253-for-the-number",
    ),
    _mutant(
        "any-option",
        "An option byte of 2 is taken for 1.",
        wire.ANY_OPTION,
        "payload/option-2",
        "payload/option-255",
    ),
    _mutant(
        "any-text",
        "A string that is not UTF-8 is taken.",
        wire.ANY_TEXT,
        "payload/no-utf-8",
        "payload/surrogate",
        "payload/overlong-utf-8",
        "payload/cut-utf-8",
    ),
    _mutant(
        "characters-read",
        "The length of a string is taken as characters.",
        wire.CHARACTERS_READ,
        "payload/string-beyond-ascii",
        "checks/odd-labels",
    ),
    _mutant(
        "short-payload",
        "A payload that ends early is filled with zeros.",
        wire.SHORT_PAYLOAD,
        "payload/last-byte-missing",
        "payload/without-signature",
        "payload/last-byte-missing-wire-2",
        "payload/string-of-2-32",
        "payload/run-id-of-2-40",
        "wires/wire-4-without-options",
    ),
    _mutant(
        "octets-as-numbers",
        "Device numbers are read as varints.",
        wire.OCTETS_READ_AS_NUMBERS,
        "payload/devices-as-bytes",
        "admission/256-devices",
        "payload/numbers-above-250",
    ),
    _mutant(
        "any-number",
        "A message number that is not is taken for Hello.",
        wire.any_number(0),
        "payload/number-6",
        "payload/number-250",
    ),
    # -- what is said
    _mutant(
        "characters-written",
        "Strings go out with a length in characters.",
        wire.CHARACTERS_WRITTEN,
        "payload/string-in-bytes",
    ),
    _mutant(
        "trailing-accept",
        "A byte stands behind the last field of an Accept.",
        wire.trailing(1),
        "payload/no-bytes-behind",
        "payload/short-numbers",
        "payload/numbers-above-250",
        "payload/numbers-above-65535",
        "payload/options-written",
        "payload/options-absent",
    ),
    _mutant(
        "trailing-reject",
        "A byte stands behind the last field of a Reject.",
        wire.trailing(2),
        "payload/no-bytes-behind-reject",
        "payload/string-in-bytes",
    ),
    _mutant(
        "trailing-formed",
        "A byte stands behind the last field of a WorldFormed.",
        wire.trailing(3),
        "payload/no-bytes-behind",
        "payload/options-written",
    ),
    _mutant(
        "trailing-abort",
        "A byte stands behind the last field of an Abort.",
        wire.trailing(5),
        "payload/no-bytes-behind-abort",
    ),
    _mutant(
        "long-accept",
        "Numbers of an Accept take more bytes than they need.",
        wire.long_form(1),
        "payload/short-numbers",
        "payload/numbers-above-250",
        "payload/numbers-above-65535",
        "payload/options-written",
        "payload/options-absent",
        "payload/no-bytes-behind",
    ),
    _mutant(
        "answers-in-oldest",
        "Every answer is in the oldest version.",
        put(ControllerConnection, "wire", property(lambda self: 2)),
        "wires/accept-in-the-same",
        "framing/version-of-the-payload",
        "wires/reject-in-the-same",
        "wires/wire-2-in-a-world-of-wire-4",
        "wires/wire-4-in-a-world-of-wire-2",
    ),
    # -- admission
    _mutant(
        "hello-never-due",
        "A Hello has no deadline.",
        _later(Timer.HELLO, 0, link._routed),
        "admission/half-a-hello",
        "admission/magic-alone",
        "admission/late-magic",
        "admission/drip-fed-hello",
        "admission/drip-fed-header",
    ),
    _mutant(
        "hello-unscaled",
        "The deadline for Hello is not scaled.",
        _later(Timer.HELLO, 10, link._routed),
        "admission/half-a-hello",
        "admission/magic-alone",
        "admission/late-magic",
        "admission/drip-fed-hello",
        "admission/drip-fed-header",
    ),
    _mutant(
        "hello-early",
        "The deadline for Hello comes in half its time.",
        _later(Timer.HELLO, 0.5, link._routed),
        "admission/half-a-hello",
        "admission/magic-alone",
        "admission/late-magic",
    ),
    _mutant(
        "hello-put-off",
        "Bytes that come in put off the deadline for Hello.",
        wire.put_off(Timer.HELLO, 1.0),
        "admission/drip-fed-hello",
        "admission/half-a-hello",
        "admission/drip-fed-header",
    ),
    _mutant(
        "route-never-due",
        "The channel magic has no deadline.",
        _later(Timer.ROUTE, 0, link._opened),
        "admission/silent-dial",
        "admission/part-of-the-magic",
        "admission/drip-fed-magic",
    ),
    _mutant(
        "route-unscaled",
        "The deadline for the channel magic is not scaled.",
        _later(Timer.ROUTE, 5, link._opened),
        "admission/silent-dial",
        "admission/part-of-the-magic",
        "admission/drip-fed-magic",
    ),
    _mutant(
        "route-early",
        "The deadline for the channel magic is not rounded up.",
        _later(Timer.ROUTE, 0.5, link._opened),
        "admission/silent-dial",
        "admission/late-magic",
    ),
    _mutant(
        "route-put-off",
        "Bytes that come in put off the deadline for the magic.",
        wire.put_off(Timer.ROUTE, 1.0, ControllerConnection),
        "admission/drip-fed-magic",
    ),
    _mutant(
        "blank-host",
        "A host with a blank name is admitted.",
        _lenient("host name is blank"),
        "admission/blank-name",
        "admission/empty-name",
    ),
    _mutant(
        "many-devices",
        "A host with more than 256 devices is admitted.",
        _lenient("devices are offered, more than"),
        "admission/257-devices",
    ),
    _mutant(
        "few-devices",
        "A host with 256 devices is refused.",
        put(admission, "MAX_DEVICES", 255),
        "admission/256-devices",
        "payload/numbers-above-250",
    ),
    _mutant(
        "device-twice",
        "A host that offers a device twice is admitted.",
        _lenient("is offered twice"),
        "admission/device-twice",
        "admission/device-twice-apart",
    ),
    _mutant(
        "host-twice",
        "A host whose name a member has is admitted.",
        _lenient("has joined already"),
        "admission/name-twice",
        "payload/string-in-bytes",
    ),
    _mutant(
        "other-dataset",
        "The dataset signature of the first member is not looked at.",
        put(admission, "_disagreement", _any_first),
        "checks/dataset-of-the-first",
        "checks/dataset-zeros-second",
        "checks/dataset-zeros-first",
    ),
    _mutant(
        "other-configured",
        "The configured dataset signature is not looked at.",
        put(admission, "_disagreement", _any_configured),
        "checks/dataset-other-than-asked",
        "checks/dataset-*",
    ),
    _mutant(
        "zero-dataset",
        "A dataset signature of zeros agrees with all.",
        put(admission, "_disagreement", _zeros_are_none),
        "checks/dataset-zeros-second",
        "checks/dataset-zeros-when-asked",
    ),
    _mutant(
        "refused-dataset",
        "A refused Hello fixes the dataset signature.",
        acting(WINDOW, admission.refuse, _keeps_refused),
        "checks/rejected-sets-no-dataset",
    ),
    _mutant(
        "lost-dataset",
        "A lost member's Hello still fixes the dataset signature.",
        put(forming, "without_member", _keeps_lost),
        "checks/lost-sets-no-dataset",
        "checks/lost-sets-no-run",
    ),
    _mutant(
        "other-vendor",
        "The GPU vendor is not looked at.",
        _unchecked(Check.VENDOR),
        "checks/rocm-after-cu",
        "checks/cu-after-rocm",
        "checks/gfx-after-sm",
        "checks/sm-after-gfx",
        "checks/vendor-of-the-first-that-names-one",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "other-run",
        "The run id is not looked at.",
        _unchecked(Check.RUN_ID),
        "checks/run-other",
        "checks/run-of-the-first-that-has-one",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "other-nccl",
        "The NCCL version is not looked at.",
        _unchecked(Check.NCCL),
        "checks/nccl-major",
        "checks/nccl-minor",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "other-model",
        "The model signature is not looked at.",
        _unchecked(Check.MODEL_SIG),
        "checks/model-other",
        "checks/model-zeros",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "missing-run",
        "A host that leaves out the run id that another has is refused.",
        _strict(lambda ctx, hello: hello.run_id is None and Check.RUN_ID in ctx.references.agreed),
        "checks/run-missing-second",
    ),
    _mutant(
        "labels-counted",
        "A host with other labels than devices is refused.",
        _strict(lambda ctx, hello: len(hello.gpus) not in (0, len(hello.local_devices))),
        "checks/more-labels",
    ),
    _mutant(
        "labels-needed",
        "A host without labels is refused where it has devices above 7.",
        _strict(lambda ctx, hello: not hello.gpus and max(hello.local_devices, default=0) > 7),
        "admission/256-devices",
        "payload/numbers-above-250",
        "payload/devices-as-bytes",
    ),
    _mutant(
        "lost-name",
        "The name of a lost member stays taken.",
        put(forming, "without_member", _keeps_name),
        "admission/name-free-again",
        "admission/name-free-after-reset",
        "admission/name-free-after-half-close",
        "admission/lost-by-a-bad-frame",
    ),
    _mutant(
        "lost-ranks",
        "The ranks of a lost member still count.",
        acting(WINDOW, forming.retract, _keeps_ranks),
        "admission/ranks-count-no-more",
        "admission/ranks-reused",
        "admission/ranks-reused-in-the-middle",
        "admission/hole-of-another-size",
        "admission/hole-at-the-target",
        "window/quorum-lost",
    ),
    _mutant(
        "lost-place",
        "The ranks of a lost member are given to nobody.",
        put(admission, "_vacancy", lambda ctx, hello: None),
        "admission/ranks-reused",
        "admission/ranks-reused-in-the-middle",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "refused-counts",
        "A refused host counts towards the quorum.",
        acting(WINDOW, admission.refuse, _counts_refused),
        "admission/rejected-counts-not",
        "admission/rejected-takes-no-rank",
    ),
    _mutant(
        "reject-open",
        "The connection stays open after a Reject.",
        put(link, "_reject", _reject_and_stay),
        "admission/closed-after-reject",
        "admission/closed-after-reject-of-kind",
        "admission/closed-after-reject-of-garbage",
        "messages/only-its-messages-when-rejecting",
    ),
    _mutant(
        "mixed-world",
        "Hosts of both versions share a world.",
        asking(WINDOW, admission.wrong_wire, _never),
        "wires/wire-2-in-a-world-of-wire-4",
        "wires/wire-4-in-a-world-of-wire-2",
        verdict=Verdict.NON_STRICT,
    ),
    # -- Accept
    _mutant(
        "ranks-with-gap",
        "A rank is left out between two hosts.",
        _ranks(lambda ctx, ranks: tuple(rank + len(ctx.members) for rank in ranks)),
        "admission/ranks-in-order",
        "admission/ranks-reused",
        "admission/ranks-reused-in-the-middle",
        "admission/no-hole",
        "admission/rejected-takes-no-rank",
        "ending/all-well",
        "running/foreign-rank",
    ),
    _mutant(
        "ranks-given-twice",
        "Every host gets ranks from 0.",
        _ranks(lambda ctx, ranks: tuple(range(len(ranks)))),
        "admission/ranks-in-order",
        "admission/ranks-reused-in-the-middle",
        "admission/rejected-takes-no-rank",
        "ending/a-rank-failed",
        "ending/a-rank-was-killed",
        "ending/a-host-was-lost",
    ),
    _mutant(
        "ranks-backwards",
        "A host gets its ranks from the last to the first.",
        _ranks(lambda ctx, ranks: ranks[::-1]),
        "admission/ranks-in-order",
        "payload/numbers-above-250",
        "payload/order-of-accept",
        "wires/whole-hello",
    ),
    _mutant(
        "rank-missing",
        "A host gets one rank less than it has devices.",
        _ranks(lambda ctx, ranks: ranks[:-1] if len(ranks) > 1 else ranks),
        "messages/ranks-for-2",
        "admission/ranks-*",
        "messages/ranks-for-8",
        "payload/numbers-above-250",
        "payload/order-of-accept",
        "payload/devices-as-bytes",
        "wires/whole-hello",
    ),
    _mutant(
        "no-salt",
        "Accept has no salt under open admission.",
        _salted(lambda ctx, salt: None),
        "messages/salt-under-open-admission",
        "payload/options-written",
        "tags/salt-*",
    ),
    _mutant(
        "salt-shown",
        "Accept has the salt under pre-shared admission.",
        _salted(lambda ctx, salt: ctx.admission.salt.hex()),
        "messages/no-salt-under-pre-shared",
        "payload/options-absent",
    ),
    _mutant(
        "wait-unscaled",
        "The formation wait in Accept is not scaled.",
        _wait(lambda ctx, wait: int(wait / ctx.config.scale)),
        "messages/formation-wait",
        "messages/formation-wait-left",
        "messages/formation-wait-of-a-short-cap",
        "payload/numbers-above-65535",
        "payload/order-of-accept",
    ),
    _mutant(
        "wait-whole",
        "The formation wait in Accept is the whole cap.",
        _wait(lambda ctx, wait: int(ctx.config.cap)),
        "messages/formation-wait-left",
    ),
    _mutant(
        "wait-zero",
        "The formation wait in Accept is 0.",
        _wait(lambda ctx, wait: 0),
        "messages/formation-wait",
        "messages/formation-wait-left",
        "messages/formation-wait-of-a-short-cap",
        "payload/numbers-above-65535",
        "payload/order-of-accept",
    ),
    # -- forming
    _mutant(
        "below-quorum",
        "A world forms below the quorum.",
        _window_property("quorate", _below_quorum),
        "window/below-quorum",
        "ending/gives-up-at-the-cap",
        "messages/only-its-messages-when-failing",
        "payload/no-bytes-behind-abort",
        "tags/abort",
        "window/quorum-lost",
        "window/cap",
        "window/not-before-the-cap",
        "wires/abort-in-the-same",
    ),
    _mutant(
        "at-quorum",
        "A world forms at the quorum, without waiting.",
        _window_property("complete", _target_as_quorum),
        "window/quorum-alone",
        "window/quorum-without-target",
        "window/quorum-lost",
        "window/not-before-join-timeout",
    ),
    _mutant(
        "join-timeout-ignored",
        "A world does not form at the join timeout.",
        asking(WINDOW, forming.quorum_by_clock, _never),
        "window/at-join-timeout",
        "forming/to-everyone-by-the-clock",
        "window/not-before-join-timeout",
        "window/late-quorum",
    ),
    _mutant(
        "join-timeout-unscaled",
        "The join timeout is not scaled.",
        _config_property("window", lambda self: self.join_timeout),
        "window/at-join-timeout",
        "ending/gives-up-at-the-cap",
        "forming/to-everyone-by-the-clock",
        "messages/only-its-messages-when-failing",
        "payload/no-bytes-behind-abort",
        "tags/abort",
        "window/not-before-join-timeout",
        "window/not-before-the-cap",
        "window/late-quorum",
        "window/cap",
        "wires/abort-in-the-same",
    ),
    _mutant(
        "cap-unscaled",
        "The cap is not scaled.",
        _config_property("cap", lambda self: self.max_join_timeout or 600.0),
        "window/cap",
        "ending/gives-up-at-the-cap",
        "messages/only-its-messages-when-failing",
        "messages/formation-*",
        "payload/numbers-above-65535",
        "payload/order-of-accept",
        "payload/no-bytes-behind-abort",
        "tags/abort",
        "window/not-before-the-cap",
        "wires/abort-in-the-same",
    ),
    _mutant(
        "overtime-ignored",
        "Who comes after the join timeout forms no world.",
        OVERTIME_IGNORED,
        "window/late-quorum",
    ),
    _mutant(
        "cap-ignored",
        "A window without quorum never fails.",
        CAP_IGNORED,
        "window/cap",
        "ending/gives-up-at-the-cap",
        "messages/only-its-messages-when-failing",
        "payload/no-bytes-behind-abort",
        "tags/abort",
        "window/not-before-the-cap",
        "wires/abort-in-the-same",
    ),
    _mutant(
        "cap-silent",
        "A window that fails sends no Abort.",
        together(acting(WINDOW, forming.cap_reached, silent(forming.cap_reached))),
        "window/cap",
        "ending/gives-up-at-the-cap",
        "messages/only-its-messages-when-failing",
        "payload/no-bytes-behind-abort",
        "tags/abort",
        "window/not-before-the-cap",
        "wires/abort-in-the-same",
    ),
    _mutant(
        "cap-well",
        "A window that failed is a good end.",
        _exit(window_failed=0),
        "window/failed-exit",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "hole-formed",
        "A world forms with a hole.",
        together(
            _window_property("quorate", _with_hole),
            _window_property("complete", _complete_with_hole),
        ),
        "admission/hole-at-the-target",
    ),
    _mutant(
        "formed-to-one",
        "WorldFormed is sent to the first member alone.",
        _formed_only(lambda ctx, given: 0 in ctx.ranks),
        "forming/to-everyone",
        "admission/no-hole",
        "artifacts/worker-of-each",
        "artifacts/world-of-two",
        "artifacts/salt",
        "artifacts/relay-spec-of-each",
        "forming/to-everyone-by-the-clock",
        "messages/only-its-messages",
        "running/report-before-the-world",
        "running/abort-before-the-world",
        "running/undecodable-before-the-world",
        "window/target",
        "window/target-passed",
        "window/at-join-timeout",
        "window/late-quorum",
    ),
    _mutant(
        "world-size",
        "The envelope's world size is that of the host.",
        _envelope(lambda value: value.update(world_size=len(value["worker"]["ranks"]))),
        "artifacts/world-of-two",
        "admission/no-hole",
    ),
    _mutant(
        "num-workers",
        "The envelope's number of hosts is always 1.",
        _envelope(lambda value: value.update(num_workers=1)),
        "artifacts/world-of-two",
    ),
    _mutant(
        "envelope-host",
        "The envelope's worker has a name of its own.",
        _envelope(lambda value: value["worker"].update(host="worker")),
        "artifacts/worker-of-each",
    ),
    _mutant(
        "envelope-ranks",
        "The envelope's worker has all ranks of the world.",
        _envelope(lambda value: value["worker"].update(ranks=list(range(value["world_size"])))),
        "artifacts/worker-of-each",
        "admission/no-hole",
    ),
    _mutant(
        "envelope-devices",
        "The envelope's worker has devices from 0.",
        _envelope(
            lambda value: value["worker"].update(
                local_devices=list(range(len(value["worker"]["ranks"])))
            )
        ),
        "artifacts/worker-of-each",
        "messages/ranks-by-device",
    ),
    _mutant(
        "envelope-salt",
        "The envelope has no salt.",
        _envelope(lambda value: value.pop("salt")),
        "artifacts/salt",
        "artifacts/envelope-members",
        "messages/salt-under-open-admission",
        "tags/salt-in-artifacts",
    ),
    _mutant(
        "relay-unasked",
        "A relay spec is sent where none is to run.",
        acting(CONTROLLER, link._form, _form_with_relay),
        "forming/no-relay",
        "payload/options-written",
    ),
    _mutant(
        "relay-ranks",
        "The relay spec has no ranks.",
        _artifact(lambda value: value.pop("ranks", None)),
        "artifacts/relay-spec",
        "artifacts/relay-spec-of-each",
    ),
    _mutant(
        "late-admitted",
        "A host is admitted after the world has formed.",
        acting(WINDOW, admission.refuse_late, _late_admitted),
        "admission/late-host",
        "admission/late-host-rejected",
    ),
    _mutant(
        "late-dismissed",
        "A host that comes too late is dismissed without a word.",
        acting(WINDOW, admission.refuse_late, _late_dismissed),
        "admission/late-host-rejected",
        verdict=Verdict.NON_STRICT,
    ),
    # -- the run
    _mutant(
        "half-closes-first",
        "The sending side is closed behind WorldFormed.",
        _form_effects(lambda effects: (*effects, fx.EndSending())),
        "running/never-hangs-up-first",
        "forming/once",
        "framing/good-behind-good",
        "messages/only-its-messages",
        "running/keeps-the-others",
        "running/reports-without-end",
        "running/other-messages",
        "running/undecodable",
        "running/empty-payload",
        "running/others-*",
        "tags/report-with-session-salt",
    ),
    _mutant(
        "failure-aborts",
        "A rank that failed ends the run.",
        asking(WINDOW, ending.report_too_bad, _any_failure),
        "running/others-after-a-failed-rank",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "loss-aborts",
        "A lost host ends the run.",
        asking(WINDOW, ending.link_too_bad, _any_loss),
        "running/others-after-an-end",
        "running/others-after-a-bad-frame",
        "running/others-after-a-reset",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "end-is-loss",
        "The end of a member's connection is always a loss.",
        put(ending, "_running", _all_lost),
        "ending/all-well",
        "ending/normal-end",
        "ending/normal-end-by-close",
        "running/foreign-rank",
        "running/unknown-rank",
        "running/second-report",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "loss-is-end",
        "A host that is lost is a good end.",
        put(ending, "_running", _never_lost),
        "ending/a-host-was-lost",
        "running/after-a-bad-frame",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "failed-well",
        "Ranks that failed are a good end.",
        _exit(failed=0),
        "ending/a-rank-failed",
        "ending/a-rank-was-killed",
        "ending/a-host-was-lost",
        "running/after-a-bad-frame",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "other-rank",
        "A report for a rank of another host is taken.",
        asking(CONTROLLER, link._news, _any_rank),
        "running/foreign-rank",
    ),
    _mutant(
        "strange-fatal",
        "A message from a member that means nothing ends its connection.",
        STRANGE_FATAL,
        "running/other-messages",
        "running/abort-before-the-world",
        "running/hello-again",
    ),
    _mutant(
        "garbled-fatal",
        "A payload from a member that cannot be decoded ends its connection.",
        asking(CONTROLLER, link._only_payload, _never),
        "running/undecodable",
        "running/empty-payload",
        "running/undecodable-before-the-world",
    ),
    _mutant(
        "bad-frame-ignored",
        "A frame from a member with a wrong tag is ignored.",
        asking(CONTROLLER, link._only_payload, _tag_or_payload),
        "running/bad-tag",
        "running/join-key",
        "running/after-a-bad-frame",
        "admission/lost-by-a-bad-frame",
        "tags/report-last-bit",
        "tags/report-with-join-key",
        "framing/two-in-one-piece",
        "framing/cut-elsewhere",
    ),
    _mutant(
        "end-ignored",
        "The end of a member's connection is not noticed.",
        cell(CONTROLLER, S.FORMED, EndOfStream),
        "running/until-the-last",
        "ending/normal-end",
        "ending/normal-end-by-close",
        "ending/all-well",
        "ending/a-rank-failed",
        "ending/a-rank-was-killed",
        "ending/a-host-was-lost",
        "running/foreign-rank",
        "running/unknown-rank",
        "running/second-report",
        "running/after-a-bad-frame",
    ),
    _mutant(
        "abort-closes",
        "The connection is closed right behind an Abort.",
        acting(
            CONTROLLER,
            link._abort,
            after(link._abort, lambda ctx, given, now, effects: (*effects, fx.CloseLink())),
        ),
        "ending/last-words-of-the-window",
        "window/failed-exit",
        verdict=Verdict.NON_STRICT,
    ),
    _mutant(
        "abort-stays",
        "After an Abort a member is waited for without end.",
        _later(Timer.ABORT, 0, link._abort),
        "ending/lingers-not-forever",
        verdict=Verdict.NON_STRICT,
    ),
)
