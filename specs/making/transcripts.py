"""Whole joins, from the first byte to the last, and joins that somebody spoils."""

from __future__ import annotations

from making import messages as say
from making.bad_agents import BadAgents
from making.bad_controllers import BadControllers
from making.book import Book
from making.scenes import Scenes
from making.worlds import World

WIRES = (2, 4)


def transcript_book() -> Book:
    """Everything that is said on some connections of one controller."""
    book = Book(
        "transcript",
        "Every byte of some connections to one controller, in order.  `from` says who sends; a step"
        " with `close` is the end of what that end sends.  Of a connection, `agent` and"
        " `controller` are how its ends come out, null for an end that is not one but plays the"
        " attacker.  What makes the ends speak is in the steps: the ranks of an Accept and the"
        " texts of WorldFormed, Reject and Abort are the controller's decisions, the codes of"
        " RankExited how the ranks ended.  Everything else follows.",
    )
    for wire in WIRES:
        for open_admission in (True, False):
            _Good(book, wire, open_admission).add_all()
            BadControllers(book, wire, open_admission).add_all()
            BadAgents(book, wire, open_admission).add_all()
    _mixed(book)
    return book


class _Good(Scenes):
    """What goes as it should, whether or not the run does."""

    def add_all(self) -> None:
        self.one_host()
        self.relay()
        self.failed_ranks()
        self.three_hosts()
        self.rejected()
        self.aborted_early()
        self.aborted_late()

    def one_host(self) -> None:
        world = self.world()
        a = world.dial("a", wire=self.wire)
        world.accept(a, (0,))
        world.form(a)
        world.exited(a, 0)
        world.close(a, "agent")
        self.add("one host, one rank, all well", world, clause="joined reported")

    def relay(self) -> None:
        world = self.world()
        a = world.dial("a", (0, 3), wire=self.wire, libtorch="cu128", signature=say.SIGNATURE)
        world.accept(a, (0, 1), wait=2**32)
        world.form(a, relay=True)
        world.exited(a, 1)
        world.exited(a, 0)
        world.close(a, "agent")
        self.add(
            "a relay, and ranks that end in another order", world, "Relay", clause="joined reported"
        )

    def failed_ranks(self) -> None:
        world = self.world()
        a = world.dial("a", (0, 1, 2, 3), wire=self.wire)
        world.accept(a, (0, 1, 2, 3))
        world.form(a)
        for rank, code in ((2, 1), (0, -9), (3, 255), (1, -15)):
            world.exited(a, rank, code)
        world.close(a, "agent")
        self.add(
            "every rank fails, and the agent ends well",
            world,
            "FailedRank",
            "Signalled",
            clause="reported failed",
        )

    def three_hosts(self) -> None:
        world = self.world()
        hosts = [
            world.dial("a", (0, 1), wire=self.wire),
            world.dial("b", (7,), wire=self.wire),
            world.dial("höst", (2, 0), wire=self.wire),
        ]
        for host, ranks, wait in zip(hosts, ((0, 1), (2,), (3, 4)), (300, 299, 0), strict=True):
            world.accept(host, ranks, wait=wait)
        world.form(*hosts, relay=True)
        for host, rank, code in ((1, 2, 0), (0, 1, 0), (2, 3, 137), (2, 4, 0), (0, 0, 0)):
            world.exited(hosts[host], rank, code)
        for host in (1, 2, 0):
            world.close(hosts[host], "agent")
        self.add(
            "three hosts, each with its own envelope",
            world,
            "SeveralHosts",
            "Relay",
            "FailedRank",
            clause="joined reported failed",
        )

    def rejected(self) -> None:
        world = self.world()
        a = world.dial("a", wire=self.wire)
        world.accept(a, (0,))
        b = world.dial("a", (1,), wire=self.wire, agent="rejected", controller="rejected")
        world.reject(b, 'host "a" has joined already')
        world.close(b, "agent")
        c = world.dial("c", (1,), wire=self.wire)
        world.accept(c, (1,))
        world.form(a, c)
        world.exited(a, 0)
        world.exited(c, 1)
        world.close(a, "agent")
        world.close(c, "agent")
        self.add(
            "a second host of the same name is turned away, a third is not",
            world,
            "SeveralHosts",
            "Reject",
            clause="joined turned-away",
        )

    def aborted_early(self) -> None:
        world = self.world()
        a = world.dial("a", wire=self.wire, agent="aborted", controller="lost")
        b = world.dial("b", wire=self.wire, agent="aborted", controller="lost")
        world.accept(a, (0,))
        world.accept(b, (1,))
        world.abort(a, b, reason="no quorum within the cap")
        world.close(a, "agent")
        world.close(b, "agent")
        self.add(
            "the window fails, and everyone admitted is told",
            world,
            "SeveralHosts",
            "Abort",
            clause="joined given-up",
        )

    def aborted_late(self) -> None:
        world = self.world()
        a = world.dial("a", (0, 1), wire=self.wire, agent="aborted")
        world.accept(a, (0, 1))
        world.form(a, relay=True)
        world.exited(a, 0, 3)
        world.abort(a, reason="rank 0 failed")
        world.exited(a, 1, -15)
        world.close(a, "agent")
        self.add(
            "Abort ends what still runs, and its end is told",
            world,
            "Abort",
            "Relay",
            "FailedRank",
            "Signalled",
            clause="joined torn-down",
        )


def _mixed(book: Book) -> None:
    """One world of two wire versions: the version is each connection's own."""
    world = World(open_admission=True)
    a = world.dial("a", wire=2)
    b = world.dial("b", wire=4, run_id="r", nccl=(2, 27, 3), model=say.SIGNATURE)
    world.accept(a, (0,))
    world.accept(b, (1,))
    world.form(a, b)
    world.exited(b, 1)
    world.exited(a, 0, -9)
    world.close(a, "agent")
    world.close(b, "agent")
    book.add(
        "join-mixed",
        "hosts of wire 2 and of wire 4 in one world",
        clause="mixed",
        given=world.given(),
        flags=("OpenAdmission", "SeveralHosts", "FailedRank", "Signalled"),
    )
