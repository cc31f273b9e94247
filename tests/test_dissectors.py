"""The protocol told to other programs: the Kaitai Struct grammar and the Wireshark dissector.

Both are held against every vector of a frame or a payload; neither shares a line with the codec.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from kaitaistruct import ValidationFailedError

from joinproto.codec import Note, encode
from joinproto.conformance.pcap import Conversation, Endpoint, Event, Side
from joinproto.errors import Stage
from joinproto.grammar import JOIN_MAGIC
from joinproto.limits import HEADER_BYTES, MAX_PAYLOAD_BYTES
from joinproto.messages import Abort, Accept, Hello, Message, RankExited, Reject, WorldFormed
from tests.support import kaitai, tshark
from tests.support.kaitai import REFUSED, frames_of, message_of, needs_compiler, parsed
from tests.support.readings import KEY, Reading, load
from tests.support.tshark import Shown, dissected, needs_tshark

README = (kaitai.SPECS / "README.md").read_text()
CLIENT, SERVER = Endpoint("192.0.2.1", 50_000), Endpoint("192.0.2.2", 7000)

READINGS = load()
SMALL = [vector for vector in READINGS if len(vector.data) < 100_000]
LARGE = [vector for vector in READINGS if len(vector.data) >= 100_000]
VALID = [vector for vector in SMALL if vector.message]


def test_the_vectors_have_everything_that_can_be_wrong() -> None:
    stages = {vector.stage for vector in READINGS}
    assert stages == {*Stage, None} - {Stage.TAG}
    assert {note for vector in READINGS for note in vector.notes} == set(Note)
    types = {type(vector.message) for vector in READINGS}
    assert types == {Hello, Accept, Reject, WorldFormed, RankExited, Abort, type(None)}


# -- Kaitai Struct ----------------------------------------------------------------------------

PLACES = {
    Stage.MAGIC: "/types/header/seq/0",
    Stage.VERSION: "/types/header/seq/1",
    Stage.KIND: "/types/header/seq/3",
    Stage.LENGTH: "/types/header/seq/4",
}
"""Where in the grammar it says what a header is refused for."""


@pytest.mark.parametrize("vector", READINGS, ids=lambda vector: vector.name)
def test_the_grammar_on_a_vector(vector: Reading) -> None:
    if vector.stage is not None:
        with pytest.raises(REFUSED) as caught:
            parsed(vector.data)
        place = getattr(caught.value, "src_path", None)
        assert place == PLACES.get(vector.stage, place)
        return
    stream = parsed(vector.data)
    frames = frames_of(stream)
    assert len(frames) == vector.is_whole
    assert stream.cut_header == (b"" if frames else vector.data)
    if frames:
        assert message_of(frames[0]) == vector.message
        assert frames[0].header.tag == vector.data[8:16]
        assert frames[0].header.version == int.from_bytes(vector.data[4:8], "little")
    if vector.message is not None:
        trailing = bool(frames[0].payload.trailing)
        assert trailing == (Note.TRAILING_BYTES in vector.notes)


def test_the_grammar_on_what_a_dialer_sends() -> None:
    sent = [vector.data for vector in VALID]
    frames = frames_of(parsed(JOIN_MAGIC + b"".join(sent), is_dialer=True))
    assert [message_of(frame) for frame in frames] == [vector.message for vector in VALID]
    with pytest.raises(ValidationFailedError) as caught:
        parsed(sent[0], is_dialer=True)
    assert caught.value.src_path == "/seq/0"


def test_the_example_of_the_parser() -> None:
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        cwd=kaitai.SPECS.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_compiler
def test_the_parser_is_the_one_of_the_grammar() -> None:
    assert kaitai.PARSER.read_text() == kaitai.compiled("python"), "make specs"


@needs_compiler
@pytest.mark.parametrize("language", ["cpp_stl", "go", "java", "javascript", "rust"])
def test_the_grammar_compiles_to(language: str) -> None:
    assert "dataset" in kaitai.compiled(language).lower()


# -- Wireshark --------------------------------------------------------------------------------

COMPLAINTS = {
    Stage.MAGIC: "bad_magic",
    Stage.VERSION: "bad_version",
    Stage.KIND: "bad_kind",
    Stage.LENGTH: "too_long",
    Stage.TRUNCATED: "cut_off",
    Stage.PAYLOAD: "bad_payload",
    Note.NON_MINIMAL_VARINT: "not_minimal",
    Note.TRAILING_BYTES: "trailing_bytes",
}


def stream(number: int, data: bytes) -> Conversation:
    """A dial to the join channel that says this and ends."""
    events = [Event(number, "client", JOIN_MAGIC + data), Event(number + 0.5, "client", "fin")]
    return Conversation(CLIENT._replace(port=10_000 + number), SERVER, events)


def complaints_of(vector: Reading) -> set[str]:
    """What is to be complained of in a stream."""
    if vector.stage is not None:
        return {COMPLAINTS[vector.stage]}
    if vector.is_whole and vector.message is None:
        return {"other_kind"}
    return {COMPLAINTS[note] for note in vector.notes}


def check(shown: list[Shown], vector: Reading) -> None:
    """That a conversation of one vector was shown as what it is."""
    dialed, *others = shown
    assert dialed.number("channel") == int.from_bytes(JOIN_MAGIC, "little")
    complaints = {name for part in others for name in part.complaints}
    if vector.stage is Stage.PAYLOAD:
        complaints.discard("not_minimal")  # of what stands in front of the mistake
    assert complaints == complaints_of(vector)
    frames = [part for part in others if part.is_frame]
    if vector.stage is not None:
        assert all(part.message is None for part in frames)
        return
    assert len(frames) == vector.is_whole
    if frames:
        assert frames[0].message == vector.message
        assert frames[0].number("version") == int.from_bytes(vector.data[4:8], "little")
        assert frames[0].all("tag")[0].value == vector.data[8:16]
        assert frames[0].number("length") == len(frames[0].all("payload")[0].value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tshark")


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mss", "longest"),
    [
        (65_000, 100_000),
        pytest.param(25, 1000, marks=pytest.mark.long),
        pytest.param(1, 32, marks=pytest.mark.long),
    ],
)
def test_the_dissector_on_every_vector(folder: Path, mss: int, longest: int) -> None:
    """In one segment, and cut into as many as there is patience for."""
    some = [vector for vector in READINGS if len(vector.data) <= longest]
    assert len(some) > 100
    said = [stream(number, vector.data) for number, vector in enumerate(some)]
    for shown, vector in zip(dissected(folder, said, mss=mss), some, strict=True):
        check(shown, vector)


@needs_tshark
@pytest.mark.long
def test_the_dissector_on_what_is_large(folder: Path) -> None:
    assert max(len(vector.data) for vector in LARGE) == HEADER_BYTES + MAX_PAYLOAD_BYTES
    said = [stream(number, vector.data) for number, vector in enumerate(LARGE)]
    names = ("joinproto.length", "joinproto.message", "joinproto.bad_payload")
    shown = ("-T", "fields", *(part for name in names for part in ("-e", name)))
    lines = tshark.run(folder, said, *shown, "-Y", "joinproto.length").splitlines()
    assert [line.split("\t")[:2] for line in lines] == [
        [str(len(vector.data) - HEADER_BYTES), str(vector.message.number if vector.message else 0)]
        for vector in LARGE
    ]


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize("mss", [65_000, pytest.param(1400, marks=pytest.mark.long)])
def test_many_frames_in_a_stream(folder: Path, mss: int) -> None:
    """In both directions, over IPv6; in two passes, of which the second knows what will come."""
    sent = b"".join(vector.data for vector in VALID)
    events: list[Event] = [
        Event(1, "client", JOIN_MAGIC + sent),
        Event(2, "server", sent),
        Event(3, "server", "fin"),
    ]
    said = Conversation(Endpoint("2001:db8::1", 50_000), Endpoint("2001:db8::2", 7000), events)
    [shown] = dissected(folder, [said], "-2", mss=mss)
    assert not shown[0].is_frame
    assert [part.message for part in shown[1:]] == 2 * [vector.message for vector in VALID]


HELLO = Hello(host="a", local_devices=(0, 1), run_id="x", nccl_version=(2, 21, 5))
SENT: list[tuple[Message, str]] = [
    (HELLO, "Hello host=a devices=[0,1] run=x nccl=2.21.5"),
    (Accept(ranks=(2, 3), salt_hex=None, formation_wait_secs=600), "Accept ranks=[2,3] wait=600"),
    (Reject(reason="no\n\x1b[31m"), "Reject no\\x0a\\x1b[31m"),
    (WorldFormed(envelope_hex="7b7d", relay_spec_hex=None), "WorldFormed"),
    (RankExited(rank=3, code=-9), "RankExited rank=3 code=-9"),
    (Abort(reason="ü" * 100), "Abort " + "ü" * 39 + "…"),
]


@needs_tshark
@pytest.mark.slow
def test_the_list_of_packets(folder: Path) -> None:
    frames = [encode(message, key=KEY, wire=4) for message, _ in SENT]
    events = [Event(1, "client", JOIN_MAGIC), Event(2, "client", frames[0] + frames[4])]
    events += [Event(3 + turn, "server", frame) for turn, frame in enumerate(frames)]
    said = Conversation(CLIENT, SERVER, events)
    only = ("-Y", "joinproto", "-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info")
    lines = tshark.run(folder, [said], *only).splitlines()
    told = ["Dial to the join channel", f"{SENT[0][1]}; {SENT[4][1]}", *(info for _, info in SENT)]
    assert lines == [f"JOIN\t{info}" for info in told]


@needs_tshark
@pytest.mark.slow
def test_what_can_be_filtered_on(folder: Path) -> None:
    filters = re.findall(r"`(joinproto\.\w+\.\w+ .+?)`", README)
    assert len(filters) == 2
    frames = [encode(message, key=KEY, wire=4) for message, _ in SENT]
    events = [Event(1 + turn, "server", frame) for turn, frame in enumerate(frames)]
    for condition, kind in zip(filters, (0, 4), strict=True):
        only = ("-Y", condition, "-T", "fields", "-e", "joinproto.message")
        said = [Conversation(CLIENT, SERVER, events)]
        assert tshark.run(folder, said, *only).split() == [str(kind)]


def test_the_page_names_what_is_complained_of() -> None:
    script = tshark.SCRIPT.read_text()
    names = re.findall(r'= complaint\("(\w+)"', script)
    assert {*COMPLAINTS.values(), "other_kind", "not_whole"} == set(names)
    assert [name for name in names if f"{name}`" not in README] == []


BY_HAND = ("-o", "tcp.try_heuristic_first:FALSE", "-d", "tcp.port==7000,joinproto")
FRAME = encode(RankExited(rank=3, code=-9), key=KEY, wire=2)
LONG = encode(Abort(reason="x" * 3000), key=KEY, wire=2)


def one(data: bytes, *ends: Event, side: Side = "client") -> Conversation:
    return Conversation(CLIENT, SERVER, [Event(1, side, data), *ends])


@needs_tshark
@pytest.mark.slow
@pytest.mark.parametrize("end", [Event(2, "client", "fin"), Event(2, "server", "rst")])
def test_an_end_inside_a_payload(folder: Path, end: Event) -> None:
    for arguments in ([], ["-2"]):
        [shown] = dissected(folder, [one(JOIN_MAGIC + LONG[:-1], end)], *arguments)
        assert [part.complaints for part in shown] == [(), ("cut_off",)]


@needs_tshark
@pytest.mark.slow
def test_an_end_of_the_other_side_cuts_nothing_off(folder: Path) -> None:
    said = one(JOIN_MAGIC + LONG[:-1], Event(2, "server", "fin"))
    [shown] = dissected(folder, [said])
    assert [part.complaints for part in shown] == [()]


@needs_tshark
@pytest.mark.slow
def test_what_follows_a_refused_frame_is_not_guessed_at(folder: Path) -> None:
    events = [
        Event(1, "client", JOIN_MAGIC + FRAME + b"?" * 24 + FRAME),
        Event(2, "client", b"?" * 100),
        Event(3, "client", FRAME),
    ]
    [shown] = dissected(folder, [Conversation(CLIENT, SERVER, events)], "-2")
    message = RankExited(rank=3, code=-9)
    assert [part.message for part in shown] == [None, message, None, None, message]
    assert [part.complaints for part in shown] == [(), (), ("bad_magic",), (), ()]


@needs_tshark
@pytest.mark.slow
def test_a_connection_after_another_between_the_same_ports(folder: Path) -> None:
    said = [
        one(JOIN_MAGIC + b"?" * 24, Event(2, "client", "fin"), Event(3, "server", "fin")),
        Conversation(CLIENT, SERVER, [Event(100, "client", JOIN_MAGIC + FRAME)]),
    ]
    for by_hand in ((), BY_HAND):
        first, second = dissected(folder, said, "-2", *by_hand)
        assert [part.complaints for part in first] == [(), ("bad_magic",)]
        assert [part.message for part in second] == [None, RankExited(rank=3, code=-9)]


@needs_tshark
@pytest.mark.slow
def test_the_magic_of_the_channel_comes_once(folder: Path) -> None:
    events = [Event(1, "client", JOIN_MAGIC), Event(2, "client", JOIN_MAGIC + FRAME)]
    [shown] = dissected(folder, [Conversation(CLIENT, SERVER, events)], "-2")
    assert [part.complaints for part in shown] == [(), ("bad_magic",)]


@needs_tshark
@pytest.mark.slow
def test_a_capture_that_begins_late(folder: Path) -> None:
    [shown] = dissected(folder, [one(FRAME, side="server")])
    assert [part.message for part in shown] == [RankExited(rank=3, code=-9)]


@needs_tshark
@pytest.mark.slow
def test_without_reassembly_it_is_said_that_something_is_missing(folder: Path) -> None:
    events = [Event(1, "client", JOIN_MAGIC), Event(2, "client", FRAME + LONG + FRAME)]
    off = ("-o", "tcp.desegment_tcp_streams:FALSE")
    [shown] = dissected(folder, [Conversation(CLIENT, SERVER, events)], *off, mss=1400)
    assert shown[1].message == RankExited(rank=3, code=-9)
    assert {name for part in shown for name in part.complaints} == {"not_whole"}
    [shown] = dissected(folder, [one(JOIN_MAGIC + LONG)], *off, mss=1400)
    assert {name for part in shown for name in part.complaints} == {"not_whole"}


OTHERS = {"e0170df1": "rendezvous", "e1170df1": "data", "e2170df1": "control"}


@needs_tshark
@pytest.mark.slow
def test_other_channels_are_named_and_left_alone(folder: Path) -> None:
    said = [
        Conversation(CLIENT._replace(port=port), SERVER, [Event(port, "client", magic + FRAME)])
        for port, magic in enumerate(map(bytes.fromhex, OTHERS), start=1)
    ]
    found = dissected(folder, said)
    for shown, name in zip(found, OTHERS.values(), strict=True):
        [part] = shown
        assert part.title == f"flodl {name} channel, not dissected"
        assert part.all("channel")
        assert not part.is_frame


@needs_tshark
@pytest.mark.slow
def test_http_on_the_same_port_stays_http(folder: Path) -> None:
    request = b"GET /state.json HTTP/1.1\r\nHost: a\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    said = one(request, Event(2, "server", answer))
    shown = ("-T", "fields", "-e", "http.request.uri", "-e", "http.response.code", "-Y", "http")
    for arguments in (shown, (*shown, *BY_HAND)):
        assert tshark.run(folder, [said], *arguments).split() == ["/state.json", "200"]
    [[first, _]] = dissected(folder, [said], *BY_HAND)
    assert first.title == "HTTP on the port of a flodl controller"


@needs_tshark
@pytest.mark.slow
def test_a_mistake_in_the_script_would_be_seen(folder: Path) -> None:
    script = folder / "wrong.lua"
    text = tshark.SCRIPT.read_text()
    assert "local function is_utf_8" in text
    script.write_text(text.replace("local function is_utf_8", "local function is_utf_9"))
    with pytest.raises(AssertionError):
        tshark.run(folder, [one(JOIN_MAGIC + LONG)], "-T", "pdml", script=script)
