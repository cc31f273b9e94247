"""Nothing outlives a `Watched`, and nobody waits for what cannot come."""

from __future__ import annotations

import time

import pytest

from interop.processes import Missed, Watched, clean_environment, ended, marked


def shell(script: str) -> Watched:
    """A shell that runs `script`."""
    return Watched(["/bin/sh", "-c", script], environment=clean_environment())


def test_descendants_end_with_it_wherever_they_have_gone() -> None:
    with shell("setsid sh -c 'echo pid $$; exec sleep 600' & wait") as process:
        escaped = int(process.wait_line(r"pid (\d+)")[1])
        assert set(marked(process.mark)) == {process.pid, escaped}
    assert ended(escaped, within=0)
    assert marked(process.mark) == []


def test_a_line_that_cannot_come_any_more_is_not_waited_for() -> None:
    with shell("echo first; echo second >&2; exit 3") as process:
        start = time.monotonic()
        with pytest.raises(Missed, match=r"no line with 'third'[^$]+stdout: first"):
            process.wait_line("third", within=60)
        assert time.monotonic() - start < 30
        assert process.wait_exit() == 3
        assert (process.lines("stdout"), process.lines("stderr")) == (["first"], ["second"])


def test_a_deadline_ends_the_wait_for_a_line_and_for_the_end() -> None:
    with shell("exec sleep 600") as process:
        with pytest.raises(Missed, match="no end"):
            process.wait_exit(within=0.01)
        with pytest.raises(Missed, match="which said: nothing"):
            process.wait_line("anything", within=0.01)
