"""What all conversations of one wire version and one way of admission share."""

from __future__ import annotations

from making.book import Book
from making.worlds import World


class Scenes:
    """Conversations of one wire version and one way of admission."""

    prefix = "join"

    def __init__(self, book: Book, wire: int, open_admission: bool) -> None:
        self.book = book
        self.wire = wire
        self.open = open_admission
        self.trust = "OpenAdmission" if open_admission else "PreShared"

    def world(self) -> World:
        return World(open_admission=self.open)

    def add(self, comment: str, world: World, *flags: str, clause: str) -> None:
        mode = "open" if self.open else "shared"
        self.book.add(
            f"{self.prefix}-v{self.wire}-{mode}",
            comment,
            clause=clause,
            given=world.given(),
            result="invalid" if world.stage else "valid",
            stage=world.stage,
            flags=(self.trust, *flags),
        )
