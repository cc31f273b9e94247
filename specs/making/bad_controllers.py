"""An agent, and a controller that is none."""

from __future__ import annotations

from making import messages as say
from making.scenes import Scenes
from making.wire import KEY, LARGEST, OTHER, ZERO, frame, header
from making.worlds import World


class BadControllers(Scenes):
    """An agent, and a controller that is none."""

    prefix = "agent"

    def add_all(self) -> None:
        self.answers()
        self.worlds()
        self.nuisances()
        self.ends()

    def met(self, *, agent: str = "failed", devices: tuple[int, ...] = (0,)) -> tuple[World, int]:
        world = self.world()
        return world, world.dial("a", devices, wire=self.wire, agent=agent, controller=None)

    def admitted(self, *, agent: str = "failed") -> tuple[World, int]:
        world, a = self.met(agent=agent)
        world.accept(a, (0,))
        return world, a

    def told(self, comment: str, world: World, *flags: str, clause: str) -> None:
        """The agent hangs up on this one."""
        world.close(0, "agent")
        self.add(comment, world, "HostileController", *flags, clause=clause)

    def answers(self) -> None:
        """In place of Accept or Reject."""
        salt = KEY.hex() if self.open else None
        good = say.accept((0,), salt, 60)[0]
        world, a = self.met()
        world.odd(a, "controller", good, stage="tag", key=OTHER)
        self.told("Accept under another salt", world, "WrongKey", clause="key tag")
        world, a = self.met()
        wrong = KEY if self.open else ZERO
        world.odd(a, "controller", good, stage="tag", key=wrong)
        self.told(
            "Accept under the key of the other way of admission",
            world,
            "WrongKey",
            clause="key tag",
        )
        world, a = self.met()
        join = world.join_key
        world.odd(a, "controller", say.formed("7b7d", None)[0], stage="state", key=join)
        self.told("WorldFormed before Accept", world, "WrongState", clause="unexpected")
        world, a = self.met()
        world.odd(a, "controller", say.abort("no")[0], stage="state", key=join)
        self.told("Abort before Accept", world, "WrongState", clause="unexpected")
        world, a = self.met()
        world.odd(a, "controller", say.exited(0, 0)[0], stage="state", key=join)
        self.told(
            "a report of a rank, which only agents send", world, "WrongState", clause="unexpected"
        )
        world, a = self.met()
        world.odd(a, "controller", good, stage="version", key=join, wire=6 - self.wire)
        self.told("Accept in another wire version", world, "UnknownVersion", clause="version")
        world, a = self.met()
        world.odd(a, "controller", good, stage="kind", key=join, kind=1)
        self.told("Accept on another channel", world, "OtherKind", clause="otherkind")
        world, a = self.met()
        world.odd(a, "controller", good[:-1], stage="payload", key=join)
        self.told("Accept cut short", world, "CutShort", clause="undecodable cut")
        world, a = self.met(devices=(0, 1))
        world.odd(a, "controller", good, stage="state", key=join)
        self.told("fewer ranks than devices", world, "WrongState", clause="rank-count")
        world, a = self.met()
        world.raw(a, "controller", b"HTTP/1.1 400 Bad Request\r\n\r\n", stage="magic")
        self.told("a web server answers", world, "WrongMagic", clause="magic")
        if self.open:
            world, a = self.met()
            world.odd(a, "controller", say.accept((0,), None, 60)[0], stage="state", key=join)
            self.told(
                "Accept without a salt under open admission",
                world,
                "WrongState",
                clause="trust",
            )
            world, a = self.met()
            world.odd(a, "controller", say.accept((0,), "07", 60)[0], stage="state", key=join)
            self.told("a salt of one byte", world, "WrongState", clause="salt-text")

    def worlds(self) -> None:
        """In place of WorldFormed or Abort."""
        formed = say.formed("7b7d", None)[0]
        if self.open:
            world, a = self.admitted()
            world.odd(a, "controller", formed, stage="tag", key=ZERO)
            self.told("WorldFormed still under the zero key", world, "WrongKey", clause="key")
        world, a = self.admitted()
        world.odd(a, "controller", formed, stage="tag", key=OTHER)
        self.told("WorldFormed under another salt", world, "WrongKey", clause="key")
        world, a = self.admitted()
        world.odd(a, "controller", formed, stage="kind", kind=1)
        self.told("WorldFormed on another channel", world, "OtherKind", clause="otherkind")
        world, a = self.admitted()
        world.odd(a, "controller", say.accept((0,), KEY.hex(), 1)[0], stage="state")
        self.told("a second Accept", world, "WrongState", clause="unexpected")
        world, a = self.admitted()
        world.odd(a, "controller", say.reject("late")[0], stage="state")
        self.told("Reject after Accept", world, "WrongState", clause="unexpected")
        world, a = self.admitted()
        world.raw(a, "controller", header(wire=self.wire, length=LARGEST + 1), stage="length")
        self.told("more than 16 MiB are announced", world, "AnnouncedLength", clause="length")

    def nuisances(self) -> None:
        """What an agent that has ranks to watch does not end for."""
        for comment, payload, stage, flag in (
            ("a message that does not exist", b"\6", "payload", "UnknownVariant"),
            ("a reason that is not UTF-8", b"\5\1\xff", "payload", "InvalidUtf8"),
            ("a second WorldFormed", say.formed("7b7d", None)[0], "state", "WrongState"),
            ("a Hello, which only agents send", say.hello(self.wire)[0], "state", "WrongState"),
        ):
            world, a = self.admitted(agent="finished")
            world.form(a)
            world.odd(a, "controller", payload, stage=stage)
            world.exited(a, 0, 5)
            flags = (flag, "Ignored", "FailedRank")
            self.told(f"{comment}, while ranks run", world, *flags, clause=f"agent-ignores-{stage}")

    def ends(self) -> None:
        """A controller that goes away."""
        data = frame(say.formed("7b7d", None)[0], wire=self.wire)
        world, a = self.admitted()
        world.raw(a, "controller", data[:-1], stage="truncated")
        world.close(a, "controller")
        self.told("the end inside a payload", world, clause="truncated")
        world, a = self.admitted()
        world.close(a, "controller")
        self.told("the end before the world formed", world, "EndOfStream", clause="eof lost-early")
        world, a = self.admitted()
        world.form(a)
        world.close(a, "controller")
        world.exited(a, 0, -15)
        # The report is due, and goes nowhere: an agent may leave it out.
        world.steps.pop()
        self.told(
            "the end while ranks run: they are killed", world, "EndOfStream", clause="eof lost-late"
        )
