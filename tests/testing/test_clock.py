from __future__ import annotations

import pytest

from joinproto.testing import FakeClock


def test_time_passes_only_when_told() -> None:
    clock = FakeClock(5.0)
    assert clock() == clock.now == 5.0
    assert clock.advance(2.5) == 7.5
    assert clock() == 7.5


def test_it_goes_on_to_a_time_and_never_back() -> None:
    clock = FakeClock()
    assert clock.advance_to(3.0) == 3.0
    assert clock.advance_to(1.0) == 3.0


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_time_that_does_not_go_forward_is_refused(seconds: float) -> None:
    clock = FakeClock(1.0)
    with pytest.raises(ValueError, match="goes forward"):
        clock.advance(seconds)
    assert clock.now == 1.0


def test_it_shows_its_time() -> None:
    assert repr(FakeClock(1.5)) == "FakeClock(1.5)"
