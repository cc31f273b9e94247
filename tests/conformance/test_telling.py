from __future__ import annotations

from typing import Any

import pytest

from joinproto.conformance.conversation import Garbled, Over, Raw, Said
from joinproto.conformance.http_reply import Reply
from joinproto.conformance.telling import child_text, event_text, exit_text, pattern_text
from joinproto.conformance.world import Child, Exit, Line
from joinproto.errors import DecodeError, Stage
from joinproto.messages import Abort


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Said(at=0, message=Abort(reason="x"), wire=2), "Abort(reason='x') in wire 2"),
        (
            Garbled(at=0, error=DecodeError(Stage.TAG, "no")),
            "bytes that are no message (tag: no)",
        ),
        (Over(at=0, how="rst"), "a reset (RST)"),
        (Raw(at=0, data=b"\1"), "1 bytes 01"),
        (Reply(at=0, status=200, body=b"ab"), "HTTP 200 with 2 bytes"),
        (Exit(at=0, code=3), "the target ended with code 3"),
        (Child(name="0", up=0), "the rank at place 0 came up"),
        (Child(name="relay", up=0, down=1), "the relay ended"),
        (Line(at=0, stream="stdout", text="a"), "the line 'a' on stdout"),
        (None, "nothing"),
    ],
)
def test_what_happened(event: Any, text: str) -> None:
    assert event_text(event) == text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ({"message": "Abort", "fields": {"reason": "x"}, "on": "a"}, "Abort(reason='x') on a"),
        ({"end": ["fin"]}, "the end of the stream (FIN)"),
        ({"http": {"status": 200}}, 'an HTTP reply with {"status": 200}'),
        ({"exit": [0]}, "the target to end with [0]"),
        ({"up": 0, "facts": {"cwd": "/"}}, 'the rank at place 0 to come up with {"cwd": "/"}'),
        ({"up": "relay"}, "the relay to come up"),
        ({"down": 1}, "the rank at place 1 to end"),
        ({"line": "x"}, "a line like 'x'"),
        ({"dial": "c"}, "the target to dial"),
        ({"garbled": True}, "bytes that are no message"),
        ({"nothing": True, "on": "a"}, "nothing more on a"),
    ],
)
def test_what_is_waited_for(pattern: dict[str, Any], text: str) -> None:
    assert pattern_text(pattern) == text


def test_how_a_target_ended() -> None:
    assert exit_text(-11) == "the target was ended by SIGSEGV"
    assert child_text("3") == "the rank at place 3"
