"""timers: many deadlines, one each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from joinproto.runtime.timers import Timers


def test_they_are_called_in_order_and_once() -> None:
    timers, called = Timers(), list[tuple[str, float]]()
    for owner, at in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        timers.set(owner, at, lambda now, owner=owner: called.append((owner, now)))  # type: ignore[misc]
    assert timers.next == 1.0
    timers.run(2.5)
    timers.run(2.5)
    assert called == [("a", 2.5), ("b", 2.5)]
    assert timers.next == 3.0


def test_one_set_anew_takes_the_place_of_the_earlier() -> None:
    timers, called = Timers(), list[float]()
    timers.set("a", 1.0, called.append)
    timers.set("a", 5.0, called.append)
    timers.run(4.0)
    assert (called, timers.next) == ([], 5.0)
    timers.set("a", None, called.append)
    assert timers.next is None
    timers.run(9.0)
    assert called == []


def test_a_call_may_set_the_next() -> None:
    timers, called = Timers(), list[float]()

    def call(now: float) -> None:
        called.append(now)
        if len(called) < 3:
            timers.set("a", now, call)

    timers.set("a", 1.0, call)
    timers.run(1.0)
    assert called == [1.0] * 3


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.floats(0, 100)), max_size=300))
def test_what_is_due_is_what_was_set_last(given: list[tuple[int, float | None]]) -> None:
    timers, called, wanted = Timers(), list[int](), dict[int, float]()
    for owner, at in given:
        timers.set(owner, at, lambda now, owner=owner: called.append(owner))  # type: ignore[misc]
        wanted.pop(owner, None)
        if at is not None:
            wanted[owner] = at
    assert timers.next == min(wanted.values(), default=None)
    timers.run(50.0)
    due = [owner for owner, at in wanted.items() if at <= 50.0]
    assert sorted(called) == sorted(due)
    assert [wanted[owner] for owner in called] == sorted(wanted[owner] for owner in due)


def test_what_was_cleared_does_not_pile_up() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.set(number, 1e9 + number, lambda now: None)
        timers.clear(number)
    assert len(timers._heap) <= 64
