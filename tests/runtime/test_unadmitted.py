"""unadmitted: how many strangers there may be, and what they may hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from joinproto.runtime.unadmitted import Limits, Unadmitted

FAR = "203.0.113.7"
OTHER = "203.0.113.8"
NEAR = "127.0.0.1"


def unadmitted(most: int = 9, per_address: int = 2, held: int = 100) -> Unadmitted:
    return Unadmitted(Limits(most=most, most_per_address=per_address, most_bytes=held))


def test_past_an_addresses_limit_its_own_oldest_goes() -> None:
    them = unadmitted()
    assert them.add(1, OTHER) is None
    assert [them.add(number, FAR) for number in (2, 3)] == [None, None]
    assert them.add(4, FAR) == (2, f"more than 2 from {FAR}")
    them.remove(2)
    assert (len(them), them.oldest, 3 in them, 2 in them) == (3, 1, True, False)


def test_loopback_has_no_limit_of_its_own() -> None:
    them = unadmitted(most=5)
    assert [them.add(number, NEAR) for number in range(5)] == [None] * 5
    assert them.add(5, NEAR) == (0, "more than 5 in all")


def test_who_is_admitted_or_gone_no_longer_counts() -> None:
    them = unadmitted(per_address=1)
    for number in range(5):
        assert them.add(number, FAR) is None
        them.remove(number)
        them.remove(number)
    assert (len(them), them.oldest) == (0, None)


def test_past_the_bytes_the_one_that_holds_most_goes() -> None:
    them = unadmitted()
    for number in (1, 2, 3):
        them.add(number, NEAR)
    assert them.holds(1, 30) is None
    assert them.holds(2, 60) is None
    assert them.holds(3, 10) is None
    dropped = them.holds(3, 11)
    assert dropped is not None
    assert dropped[0] == 2
    them.remove(2)
    assert them.holds(3, 70) is None
    assert them.holds(1, 0) is None


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from([FAR, OTHER, NEAR])), max_size=200))
def test_whatever_comes_they_stay_within_their_limits(steps: list[tuple[int, str]]) -> None:
    them = unadmitted(most=5)
    where: dict[int, str] = {}
    for number, (which, host) in enumerate(steps):
        if which in where:
            them.remove(which)
            del where[which]
        dropped = them.add(number + 100, host)
        where[number + 100] = host
        if dropped is not None:
            them.remove(dropped[0])
            del where[dropped[0]]
        assert len(them) == len(where) <= 5
        assert them.oldest == min(where)
        assert all(list(where.values()).count(far) <= 2 for far in (FAR, OTHER))
