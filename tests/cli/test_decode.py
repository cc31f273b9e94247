"""`joinproto decode`: the vectors, the two inputs, the two forms, and anything else."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.cli import decode, main
from joinproto.codec import encode, encode_frame, encode_payload
from joinproto.grammar import CHANNEL_MAGICS, JOIN_MAGIC, WIRES
from joinproto.keys import OPEN, Salt
from joinproto.messages import Abort, Accept, Hello, Message, RankExited, WorldFormed
from tests.support.python import PATIENCE

VECTORS = Path(__file__).parents[2] / "specs" / "vectors" / "published"
FILES = sorted(VECTORS.glob("frames-*.json"))

SALT = Salt(bytes(range(16)))
SESSION = Salt(bytes(range(16, 32)))
HELLO = Hello(host="a", local_devices=(0, 1), gpus=("g", "h"))
ACCEPT = Accept(ranks=(4, 5), salt_hex=SESSION.hex(), formation_wait_secs=60)
EXITED = RankExited(rank=7, code=-9)

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def salt_file(tmp_path: Path) -> str:
    path = tmp_path / "salt"
    path.touch(mode=0o600)
    path.write_text(SALT.hex())
    return str(path)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `decode --json` on what stdin gives; what it said, after a look at its exit code."""

    def run(stdin: bytes, *arguments: str) -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["decode", "--json", *arguments])
        shown = capsys.readouterr()
        assert shown.err == ""
        said: list[dict[str, Any]] = [json.loads(line) for line in shown.out.splitlines()]
        assert code == any("error" in one for one in said)
        return said

    return run


def frame(message: Message, key: Salt = OPEN, wire: int = 2) -> bytes:
    return encode(message, key=key, wire=wire)


def lines(*frames: bytes) -> bytes:
    return b"".join(frame.hex().encode() + b"\n" for frame in frames)


def keys_of(said: list[dict[str, Any]]) -> list[Any]:
    """The key of each frame, or the stage at which it was refused."""
    return [one["error"]["stage"] if "error" in one else one.get("key") for one in said]


# -- vectors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_vector_has_its_verdict(path: Path, run: Run, tmp_path: Path) -> None:
    suite = json.loads(path.read_text())
    salt = tmp_path / "salt"
    salt.touch(mode=0o600)
    salt.write_text(suite["salt"])
    cases = suite["tests"]
    assert len(cases) == suite["numberOfTests"]
    stdin = "".join(f"{case['frame']}\n" for case in cases).encode()
    said = run(stdin, "--salt-file", str(salt))
    for case, one in zip(cases, said, strict=True):
        if case.get("stage") == "version" and one.get("wire") in WIRES:
            continue  # a version that the vectors' program does not speak, and we do
        assert verdict(one) == case["result"], case
        check[case["result"]](case, one, suite["wireVersion"])


def verdict(one: dict[str, Any]) -> str:
    if "error" in one:
        return "invalid"
    if one == {"end_of_stream": True}:
        return "end-of-stream"
    return "valid" if one["kind"] == "Join" else "other-kind"


def check_valid(case: dict[str, Any], one: dict[str, Any], wire: int) -> None:
    assert one["message"] == case["message"]
    assert one["wire"] == wire
    assert one["key"] == "salt"
    assert one["consumed"] == case.get("consumed", len(case["frame"]) // 2)
    assert bool(one["notes"]) == ("lenient-decoder" in case.get("flags", ())), case


def check_invalid(case: dict[str, Any], one: dict[str, Any], wire: int) -> None:
    assert one["error"]["stage"] == case["stage"]
    located = {"field", "offset"} <= one["error"].keys()
    assert located == (case["stage"] == "payload")


def check_other_kind(case: dict[str, Any], one: dict[str, Any], wire: int) -> None:
    assert one.keys() == {"wire", "kind", "key", "notes", "consumed"}


check: dict[str, Callable[[dict[str, Any], dict[str, Any], int], None]] = {
    "valid": check_valid,
    "invalid": check_invalid,
    "other-kind": check_other_kind,
    "end-of-stream": lambda case, one, wire: None,
}


def test_there_are_vectors_for_every_wire_version() -> None:
    assert [path.stem for path in FILES] == [f"frames-v{wire}" for wire in sorted(WIRES)]


# -- lines ------------------------------------------------------------------------------------


def test_a_frame_and_all_that_is_said_of_it(run: Run, salt_file: str) -> None:
    payload = encode_payload(EXITED, wire=2) + b"\0"
    assert run(lines(encode_frame(payload, key=SALT, wire=2)), "--salt-file", salt_file) == [
        {
            "wire": 2,
            "kind": "Join",
            "key": "salt",
            "message": {"type": "RankExited", "rank": 7, "code": -9},
            "notes": ["trailing-bytes"],
            "consumed": 28,
        }
    ]


def test_white_space_and_case_do_not_count(run: Run) -> None:
    digits = frame(EXITED).hex()
    spaced = "\t" + " ".join(re.findall("..", digits.upper())) + "  \r"
    plain, other, last = run(f"{digits}\n{spaced}\n{digits}".encode())
    assert plain == other == last


@pytest.mark.parametrize("line", [b"\n", b"   \r\n", JOIN_MAGIC[:3].hex().encode()])
def test_an_empty_or_cut_off_line_is_an_end_of_stream(line: bytes, run: Run) -> None:
    assert run(line) == [{"end_of_stream": True}]


def test_no_line_is_no_answer(run: Run) -> None:
    assert run(b"") == []


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (b"c4 17 xx", "byte 0x78 in column 7 is no digit"),
        (b"0x00", "byte 0x78 in column 2 is no digit"),
        (b"\xc3\xb6", "byte 0xc3 in column 1 is no digit"),
        (b"c41", "an odd number of digits (3)"),
    ],
)
def test_a_line_that_is_not_hex_is_told_and_passed_over(line: bytes, detail: str, run: Run) -> None:
    bad, good = run(line + b"\n" + lines(frame(EXITED)))
    assert bad == {"error": {"stage": "hex", "detail": detail}}
    assert good["message"]["rank"] == 7


def test_a_line_without_end_is_told_and_passed_over(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "LINE_BYTES", 100)
    monkeypatch.setattr(decode, "CHUNK_BYTES", 64)
    fits = b"0" * 100
    bad, full, good = run(fits + b"0" * 200 + b"\n" + fits + b"\n" + lines(frame(EXITED)))
    assert bad == {"error": {"stage": "hex", "detail": "a line of more than 100 bytes"}}
    assert full["error"]["stage"] == "magic"
    assert good["message"]["rank"] == 7


def test_the_longest_frame_fits_on_a_line() -> None:
    assert 2 * (4 + 24 + 16 * 1024 * 1024) + len("\r\n") < decode.LINE_BYTES


@pytest.mark.parametrize(("magic", "channel"), CHANNEL_MAGICS.items(), ids=CHANNEL_MAGICS.values())
def test_a_channel_magic_is_told_and_passed_over(magic: bytes, channel: str, run: Run) -> None:
    whole, alone, wrong = run(lines(magic + frame(EXITED), magic, magic + bytes(24)))
    assert (whole["channel"], whole["consumed"]) == (channel, 4 + 27)
    assert whole["message"]["rank"] == 7
    assert alone == {"channel": channel, "end_of_stream": True}
    assert (wrong["channel"], wrong["error"]["stage"]) == (channel, "magic")


def test_a_payload_that_is_no_message_is_located(run: Run) -> None:
    (one,) = run(lines(encode_frame(b"\x05\x02\xff\xff", key=OPEN, wire=2)))
    assert one["error"]["stage"] == "payload"
    assert (one["error"]["field"], one["error"]["offset"]) == ("Abort.reason", 2)


def test_each_answer_comes_before_the_next_line() -> None:
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "joinproto", "decode", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        for rank in range(3):
            child.stdin.write(lines(frame(RankExited(rank=rank, code=0))))
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["message"]["rank"] == rank
        child.stdin.close()
        assert child.wait(PATIENCE) == 0


# -- keys -------------------------------------------------------------------------------------


def test_without_a_salt_the_key_is_zeros(run: Run) -> None:
    good, bad = run(lines(frame(EXITED), frame(EXITED, SALT)))
    assert good["key"] == "zeros"
    assert bad["error"] == {
        "stage": "tag",
        "detail": "not tagged with zeros (no salt was given), or changed on its way",
    }


def test_with_a_salt_zeros_serve_only_what_comes_before_the_session(
    run: Run, salt_file: str
) -> None:
    control = encode_frame(b"", key=OPEN, wire=2, kind=1)
    sent = (frame(HELLO), frame(ACCEPT), frame(EXITED), control, frame(EXITED, SALT))
    said = run(lines(*sent), "--salt-file", salt_file)
    assert keys_of(said) == ["zeros", "zeros", "tag", "tag", "salt"]


def test_an_accept_under_zeros_tells_the_key_of_what_follows(run: Run) -> None:
    sent = (frame(EXITED, SESSION), frame(ACCEPT), frame(EXITED, SESSION), frame(EXITED, SALT))
    said = run(lines(*sent))
    assert keys_of(said) == ["tag", "zeros", "session", "tag"]
    assert "zeros or the session salt of the Accept" in said[-1]["error"]["detail"]


def test_an_accept_under_a_salt_tells_no_key(run: Run, salt_file: str) -> None:
    said = run(lines(frame(ACCEPT, SALT), frame(EXITED, SESSION)), "--salt-file", salt_file)
    assert keys_of(said) == ["salt", "tag"]


@pytest.mark.parametrize("salt_hex", [None, "", "no salt", "00"])
def test_an_accept_without_a_usable_salt_tells_no_key(salt_hex: str | None, run: Run) -> None:
    accept = Accept(ranks=(), salt_hex=salt_hex, formation_wait_secs=0)
    first, second = run(lines(frame(accept), frame(EXITED)))
    assert first["message"]["salt_hex"] == salt_hex
    assert second["key"] == "zeros"


def test_a_salt_file_that_others_may_read_is_warned_about(
    salt_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.chmod(salt_file, 0o644)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert main(["decode", "--salt-file", salt_file]) == 0
    told = capsys.readouterr().err
    assert told.startswith("joinproto decode: salt file")
    assert SALT.hex() not in told


def test_a_salt_file_that_holds_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--salt-file", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


# -- streams ----------------------------------------------------------------------------------

DIALED = JOIN_MAGIC + frame(HELLO)
ANSWERED = frame(ACCEPT) + frame(WorldFormed(envelope_hex="7b7d"), SESSION)


def test_a_stream_is_read_to_its_end(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "captured"
    path.write_bytes(ANSWERED + frame(Abort(reason="r"), SESSION))
    accept, formed, abort, end = run(b"", "--raw", str(path))
    assert keys_of([accept, formed, abort]) == ["zeros", "session", "session"]
    assert formed["message"] == {
        "type": "WorldFormed",
        "envelope_hex": "7b7d",
        "relay_spec_hex": None,
    }
    assert sum(one["consumed"] for one in (accept, formed, abort)) == path.stat().st_size
    assert end == {"end_of_stream": True}


def test_a_stream_may_come_from_stdin(run: Run) -> None:
    hello, end = run(DIALED, "--raw", "-")
    assert (hello["channel"], hello["message"]["host"]) == ("join", "a")
    assert hello["consumed"] == len(DIALED)
    assert end == {"end_of_stream": True}


def test_a_stream_cut_inside_a_header_ended_cleanly(run: Run) -> None:
    assert run(DIALED + frame(EXITED)[:23], "--raw", "-")[1:] == [{"end_of_stream": True}]


def test_a_stream_cut_inside_a_payload_did_not(run: Run) -> None:
    hello, cut = run(DIALED + frame(EXITED)[:-1], "--raw", "-")
    assert "error" not in hello
    assert (cut["error"]["stage"], cut["at"]) == ("truncated", len(DIALED))


def test_a_frame_that_is_refused_whole_does_not_end_a_stream(run: Run) -> None:
    payload = encode_frame(b"\x09", key=OPEN, wire=2)
    sent = frame(EXITED) + frame(EXITED, SALT) + payload + frame(EXITED)
    first, tag, variant, last, end = run(sent, "--raw", "-")
    assert first == last
    assert (tag["error"]["stage"], tag["at"]) == ("tag", 27)
    assert (variant["error"]["stage"], variant["at"]) == ("payload", 54)
    assert end == {"end_of_stream": True}


@pytest.mark.parametrize("junk", [bytes(24), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_a_stream_ends_where_the_next_frame_cannot_be_found(junk: bytes, run: Run) -> None:
    hello, broken = run(DIALED + junk + frame(EXITED), "--raw", "-")
    assert "error" not in hello
    assert (broken["error"]["stage"], broken["at"]) == ("magic", len(DIALED))


def test_a_frame_larger_than_what_is_read_at_once(run: Run) -> None:
    reason = "r" * (decode.CHUNK_BYTES * 2)
    one, other, _ = run(frame(Abort(reason=reason)) + frame(EXITED), "--raw", "-")
    assert one["message"]["reason"] == reason
    assert other["message"]["rank"] == 7


@pytest.mark.parametrize(
    ("name", "told"), [("none", errno.ENOENT), ("", errno.EISDIR), ("nul\0", "embedded null byte")]
)
def test_a_file_that_cannot_be_read(
    name: str, told: int | str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", "--raw", f"{tmp_path}/{name}"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("joinproto decode: ")
    assert (os.strerror(told) if isinstance(told, int) else told) in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["--raw", "-"]])
def test_a_closed_stdin(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["decode", *arguments]) == 2
    assert capsys.readouterr().err == "joinproto decode: standard input is closed\n"


# -- the text form ----------------------------------------------------------------------------


def test_the_text_form(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    control = encode_frame(b"", key=OPEN, wire=4, kind=1)
    cut = frame(EXITED)[:23]
    sent = lines(DIALED, frame(ACCEPT), frame(EXITED, SALT), control, b"", cut) + b"x\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sent)))
    assert main(["decode"]) == 1
    assert (
        capsys.readouterr().out
        == f"""\
line 1: Hello (wire 2, key zeros, 72 bytes), first on the join channel
    host           'a'
    local_devices  [0, 1]
    gpus           ['g', 'h']
    libtorch       ''
    dataset_sig    '{bytes(32).hex()}'
line 2: Accept (wire 2, key zeros, 63 bytes)
    ranks                [4, 5]
    salt_hex             (32 characters, shown with --json)
    formation_wait_secs  60
line 3: error at stage tag: not tagged with zeros or the session salt of the Accept \
(no salt was given), or changed on its way
line 4: Control frame (wire 4, key zeros, 24 bytes)
line 5: end of stream
line 6: end of stream, 23 bytes into a header
line 7: error at stage hex: byte 0x78 in column 1 is no digit
"""
    )


def test_the_text_form_of_a_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    escape = frame(Abort(reason="\x1b[2Jgone"))
    bad = encode_frame(b"\x04", key=OPEN, wire=2)
    source = io.TextIOWrapper(io.BytesIO(JOIN_MAGIC + escape + bad + JOIN_MAGIC[:3]))
    monkeypatch.setattr(sys, "stdin", source)
    assert main(["decode", "--raw", "-"]) == 1
    assert (
        capsys.readouterr().out
        == """\
byte 4: Abort (wire 2, key zeros, 38 bytes), first on the join channel
    reason  '\\x1b[2Jgone'
byte 38: error at stage payload: a number takes 1 bytes, 0 are left \
in RankExited.rank at byte 1 of the payload
byte 63: end of stream, 3 bytes into a header
"""
    )


def test_the_text_form_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    envelope = json.dumps({"salt": SESSION.hex()}).encode().hex()
    formed = WorldFormed(envelope_hex=envelope, relay_spec_hex=envelope)
    sent = lines(frame(ACCEPT), frame(formed, SESSION))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sent)))
    assert main(["decode"]) == 0
    shown = capsys.readouterr().out
    assert SESSION.hex() not in shown
    assert envelope not in shown


# -- anything ---------------------------------------------------------------------------------

PIECES = st.sampled_from([JOIN_MAGIC, DIALED, ANSWERED, frame(EXITED), b"\0", bytes(24)])
STREAMS = st.lists(st.binary(max_size=40) | PIECES, max_size=6).map(b"".join)


def read(pieces: list[bytes]) -> list[decode.Item]:
    stream = decode.Stream(decode.Keys())
    items = []
    for piece in pieces:
        stream.feed(piece)
        while (item := stream.next_item()) is not None:
            items.append(item)
        if not stream.readable:
            return items
    return [*items, stream.end()]


@given(STREAMS, st.lists(st.integers(0, 200), max_size=5))
def test_a_stream_means_the_same_however_it_is_split(data: bytes, places: list[int]) -> None:
    cuts = [0, *sorted(places), len(data)]
    whole = read([data])
    assert read([data[start:end] for start, end in pairwise(cuts)]) == whole
    assert read([data[place : place + 1] for place in range(len(data))]) == whole


@given(STREAMS)
def test_every_byte_of_a_stream_is_accounted_for(data: bytes) -> None:
    items = read([data])
    *_, last = items
    taken = sum(item.size for item in items)
    if last.frame is None and last.error is None:
        # A magic with nothing behind it is told with the end, whose size is that of a cut header.
        assert taken + (4 if last.channel else 0) == len(data)
    else:
        assert taken < len(data)
    for item in items:
        assert "\n" not in decode.as_json(item)
        assert decode.as_text(item)


@given(st.binary(max_size=200))
def test_a_line_of_any_bytes_has_one_answer(line: bytes) -> None:
    item = decode._read_line(line, 1, decode.Keys())
    assert set(json.loads(decode.as_json(item))) & {"error", "end_of_stream", "wire"}
