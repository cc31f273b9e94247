"""What holds for every test: its plugins, how hypothesis runs, and a clean environment."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings, strategies

pytest_plugins = ["joinproto.testing.plugin", "pytester", "tests.guards"]

# The same examples on every run, and no deadline on each of them: a busy machine is no failure.
settings.register_profile("every-run", deadline=None, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=20_000, print_blob=True)
settings.load_profile("every-run")

# A shell in which somebody uses joinproto or flodl must not steer the tests.
for name in list(os.environ):
    if name.startswith("FLODL_") or name == "JOINPROTO_SALT":
        del os.environ[name]


# What runs in the background or under nohup has some ignored, and so would what the tests start.
# (The two that Python ignores by itself it restores in what it starts.)
for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
    if signal.getsignal(number) == signal.SIG_IGN:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, usual)


@pytest.fixture(scope="session", autouse=True)
def unicode_tables() -> None:
    """Have hypothesis make its tables of Unicode, which takes seconds, once in a clone.

    Left to itself, it would do so inside some test, and count against that.
    """
    strategies.text().validate()
