"""A controller, and an agent that is none."""

from __future__ import annotations

from making import messages as say
from making.scenes import Scenes
from making.wire import JOIN_MAGIC, KEY, LARGEST, OTHER, ZERO, frame, header
from making.worlds import World


class BadAgents(Scenes):
    """A controller, and an agent that is none."""

    prefix = "controller"

    def add_all(self) -> None:
        self.unheard()
        self.rejected()
        self.ignored()
        self.lost()

    def met(self, *, controller: str, greet: bool = False) -> tuple[World, int]:
        world = self.world()
        return world, world.dial(
            "a", wire=self.wire, agent=None, controller=controller, greet=greet
        )

    def member(self, *, controller: str, formed: bool = True) -> tuple[World, int]:
        world, a = self.met(controller=controller, greet=True)
        world.accept(a, (0,))
        if formed:
            world.form(a)
        return world, a

    def told(self, comment: str, world: World, *flags: str, clause: str) -> None:
        self.add(comment, world, "HostileAgent", *flags, clause=clause)

    def unheard(self) -> None:
        """Who does not hold the key, or speaks no frames, gets no word."""
        hello = say.hello(self.wire)[0]
        wrong = KEY if self.open else ZERO
        for comment, data, stage, flag in (
            (
                "Hello under another salt",
                frame(hello, wire=self.wire, key=OTHER),
                "tag",
                "WrongKey",
            ),
            (
                "Hello under the key of the other way of admission",
                frame(hello, wire=self.wire, key=wrong),
                "tag",
                "WrongKey",
            ),
            (
                "Hello in wire 3",
                frame(hello, wire=3, key=self.world().join_key),
                "version",
                "UnknownVersion",
            ),
            (
                "Hello in a later wire",
                frame(hello, wire=99, key=self.world().join_key),
                "version",
                "UnknownVersion",
            ),
            ("words", b"hello, here is host a\r\n\r\n", "magic", "WrongMagic"),
            (
                "the channel magic again",
                JOIN_MAGIC + frame(hello, wire=self.wire),
                "magic",
                "WrongMagic",
            ),
            (
                "more than 16 MiB announced",
                header(wire=self.wire, length=LARGEST + 1),
                "length",
                "AnnouncedLength",
            ),
            (
                "a kind that there is none of",
                header(wire=self.wire, length=0, kind=8),
                "kind",
                "UnknownKind",
            ),
        ):
            world, a = self.met(controller="closed")
            world.raw(a, "agent", JOIN_MAGIC + data, stage=stage)
            world.close(a, "controller")
            self.told(
                f"{comment}: closed without a word", world, flag, clause=f"{stage} unanswered"
            )
        world, a = self.met(controller="closed")
        data = frame(hello, wire=self.wire, key=world.join_key)
        world.raw(a, "agent", JOIN_MAGIC + data[:-1], stage="truncated")
        world.close(a, "agent")
        self.told("the end inside Hello", world, clause="truncated unanswered")

    def rejected(self) -> None:
        """Who holds the key is told what is wrong."""
        hello = say.hello(self.wire)[0]
        for comment, payload, kind, stage, flag in (
            ("a report comes first", say.exited(0, 0)[0], 7, "state", "WrongState"),
            ("Accept comes first", say.accept((0,), None, 1)[0], 7, "state", "WrongState"),
            ("Hello on another channel", hello, 1, "kind", "OtherKind"),
            ("Hello cut short", hello[:-1], 7, "payload", "CutShort"),
            (
                "a host of 2^40 bytes",
                b"\0\xfd" + (2**40).to_bytes(8, "little"),
                7,
                "payload",
                "AnnouncedLength",
            ),
            ("a message that does not exist", b"\6", 7, "payload", "UnknownVariant"),
        ):
            world, a = self.met(controller="rejected")
            world.odd(a, "agent", payload, stage=stage, key=world.join_key, kind=kind, first=True)
            world.reject(a, f"not a Hello: {comment}")
            world.close(a, "agent")
            self.told(comment, world, flag, "Reject", "FreeReason", clause=f"first-frame-{stage}")

    def ignored(self) -> None:
        """What a member says that means nothing."""
        again = say.exited(0, 1)[0]
        for comment, payload, stage, flag in (
            ("a rank that is not its own", say.exited(9, 0)[0], "state", "WrongState"),
            ("a second Hello", say.hello(self.wire)[0], "state", "WrongState"),
            ("Abort, which only controllers send", say.abort("x")[0], "state", "WrongState"),
            ("a message that does not exist", b"\xfa", "payload", "UnknownVariant"),
        ):
            world, a = self.member(controller="ended")
            world.odd(a, "agent", payload, stage=stage)
            world.exited(a, 0, 1)
            world.close(a, "agent")
            clause = "report-ignored" if "rank" in comment else f"controller-ignores-{stage}"
            self.told(comment, world, flag, "Ignored", "FailedRank", clause=clause)
        world, a = self.member(controller="ended")
        world.exited(a, 0, 1)
        world.odd(a, "agent", again, stage="state")
        world.close(a, "agent")
        self.told(
            "a report a second time",
            world,
            "WrongState",
            "Ignored",
            "FailedRank",
            clause="report-ignored replay",
        )
        world, a = self.member(controller="ended", formed=False)
        world.odd(a, "agent", again, stage="state")
        world.form(a)
        world.exited(a, 0, 0)
        world.close(a, "agent")
        self.told(
            "a report before there are ranks",
            world,
            "WrongState",
            "Ignored",
            clause="controller-ignores-state",
        )

    def lost(self) -> None:
        """What a member's link ends for."""
        report = say.exited(0, 0)[0]
        if self.open:
            world, a = self.member(controller="lost")
            world.odd(a, "agent", report, stage="tag", key=ZERO)
            world.close(a, "controller")
            self.told("a report under the zero key", world, "WrongKey", clause="key member-lost")
        world, a = self.member(controller="lost")
        world.odd(a, "agent", report, stage="tag", key=OTHER)
        world.close(a, "controller")
        self.told("a report under another salt", world, "WrongKey", clause="key member-lost")
        world, a = self.member(controller="lost")
        world.odd(a, "agent", report, stage="kind", kind=2)
        world.close(a, "controller")
        self.told("a report on another channel", world, "OtherKind", clause="otherkind")
        world, a = self.member(controller="lost")
        world.odd(a, "agent", report, stage="version", wire=6 - self.wire)
        world.close(a, "controller")
        self.told(
            "a report in another wire version than its Hello",
            world,
            "UnknownVersion",
            clause="version",
        )
        world, a = self.member(controller="lost")
        world.close(a, "agent")
        self.told("the end before its ranks'", world, "EndOfStream", clause="eof member-left")
