from __future__ import annotations

import sys

from joinproto.framing import Framer
from joinproto.fuzzing.lines import Lines
from joinproto.limits import parse_scale


def test_lines_of_the_core_are_new_once() -> None:
    lines = Lines()
    for expected in (True, False):
        with lines:
            Framer().feed(b"x")
        assert lines.new() is expected
    assert lines.count > 0


def test_other_lines_do_not_count() -> None:
    lines = Lines()
    with lines:
        parse_scale("0.5")
    assert not lines.new()


def test_whatever_traced_before_does_so_again() -> None:
    before = sys.gettrace()
    with Lines():
        assert sys.gettrace() is not before
    assert sys.gettrace() is before
