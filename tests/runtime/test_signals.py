"""The signals that end an agent, and that whoever had them before gets them back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from joinproto.errors import Stopped
from joinproto.runtime.signals import STOPS, heeded, stoppable
from tests.support.signals import unheeded


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    with unheeded():
        yield


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_is_raised_with_its_name_and_exit_code(number: signal.Signals) -> None:
    with pytest.raises(Stopped) as caught, stoppable():
        os.kill(os.getpid(), number)
    assert caught.value.signal_name == number.name
    assert caught.value.exit_code == 128 + number


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_that_is_ignored_stays_so(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    assert set(heeded()) == set(STOPS) - {number}
    with stoppable():
        os.kill(os.getpid(), number)
        assert signal.getsignal(number) == signal.SIG_IGN
    assert signal.signal(number, before) == signal.SIG_IGN


def test_all_of_them_are_heeded_otherwise() -> None:
    assert heeded() == STOPS
