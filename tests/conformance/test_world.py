from __future__ import annotations

from joinproto.conformance.world import SHOWN_BYTES, Trace


def test_what_happens_is_taken_down_in_order() -> None:
    trace = Trace()
    trace.add(0.12345678, "target", "bytes", connection="c", data=b"\1\2")
    trace.add(1.0, "suite", "act", text="it does")
    first, second = trace.happenings
    assert (first.at, first.hex, first.size) == (0.123457, "0102", 2)
    assert (second.who, second.text, second.connection) == ("suite", "it does", "")


def test_meaning_goes_with_the_last_bytes_of_the_target_there() -> None:
    trace = Trace()
    trace.add(0, "target", "bytes", connection="c", data=b"\1")
    trace.add(0, "suite", "bytes", connection="c", data=b"\1", text="said")
    trace.add(0, "target", "bytes", connection="d", data=b"\1")
    trace.meaning("c", "one")
    trace.meaning("c", "two")
    trace.meaning("x", "never")
    assert [each.text for each in trace.happenings] == ["one; two", "said", ""]


def test_long_bytes_are_cut() -> None:
    trace = Trace()
    trace.add(0, "target", "bytes", data=b"x" * (SHOWN_BYTES + 1))
    (entry,) = trace.happenings
    assert (len(entry.hex), entry.size) == (2 * SHOWN_BYTES, SHOWN_BYTES + 1)
