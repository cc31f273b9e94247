from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest

from joinproto.conformance.pcap import Conversation, Endpoint, Event, Side, write_pcap

CLIENT, SERVER = Endpoint("192.0.2.1", 50_000), Endpoint("192.0.2.2", 7000)
CLIENT_6, SERVER_6 = Endpoint("2001:db8::1", 50_000), Endpoint("2001:db8::2", 7000)
FAMILIES = pytest.mark.parametrize(
    ("client", "server"), [(CLIENT, SERVER), (CLIENT_6, SERVER_6)], ids=["IPv4", "IPv6"]
)
LETTERS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16}


class Packet(NamedTuple):
    """A packet as it is read back, by a reader that shares nothing with the writer."""

    time: int
    source: tuple[str, int]
    target: tuple[str, int]
    flags: str
    number: int
    heard: int
    data: bytes


def ones_complement(data: bytes) -> int:
    """The sum that is 0xFFFF over whatever holds its own checksum."""
    total = 0
    for index in range(0, len(data), 2):
        total += int.from_bytes(data[index : index + 2].ljust(2, b"\0"), "big")
        total = (total & 0xFFFF) + (total >> 16)
    return total


def segment_of(packet: bytes) -> tuple[str, str, bytes]:
    """Source, target and TCP segment of an IP packet whose header is right."""
    if packet[0] >> 4 == 4:
        assert packet[0] == 0x45
        assert int.from_bytes(packet[2:4], "big") == len(packet)
        assert packet[9] == socket.IPPROTO_TCP
        assert ones_complement(packet[:20]) == 0xFFFF
        family, addresses, segment = socket.AF_INET, packet[12:20], packet[20:]
    else:
        assert packet[0] >> 4 == 6
        assert int.from_bytes(packet[4:6], "big") == len(packet) - 40
        assert packet[6] == socket.IPPROTO_TCP
        family, addresses, segment = socket.AF_INET6, packet[8:40], packet[40:]
    pseudo = addresses + struct.pack("!II", len(segment), socket.IPPROTO_TCP)
    assert ones_complement(pseudo + segment) == 0xFFFF
    half = len(addresses) // 2
    source, target = (
        socket.inet_ntop(family, part) for part in (addresses[:half], addresses[half:])
    )
    return source, target, segment


def packets(capture: bytes) -> Iterator[Packet]:
    assert capture[:24] == struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 101)
    offset = 24
    while offset < len(capture):
        seconds, nanoseconds, size, original = struct.unpack_from("<IIII", capture, offset)
        assert size == original
        source, target, segment = segment_of(capture[offset + 16 : offset + 16 + size])
        offset += 16 + size
        ports = struct.unpack("!HH", segment[:4])
        number, heard = struct.unpack("!II", segment[4:12])
        assert segment[12] == 0x50
        yield Packet(
            time=seconds * 10**9 + nanoseconds,
            source=(source, ports[0]),
            target=(target, ports[1]),
            flags="".join(letter for letter, bit in LETTERS.items() if segment[13] & bit),
            number=number,
            heard=heard,
            data=segment[20:],
        )
    assert offset == len(capture)


def written(*conversations: Conversation, mss: int = 1400) -> list[Packet]:
    file = BytesIO()
    write_pcap(file, conversations, mss=mss)
    return list(packets(file.getvalue()))


def stream(found: list[Packet], client: Endpoint, side: Side) -> bytes:
    """What one end sent, put together by sequence number."""
    sent = [packet for packet in found if (packet.source == client) == (side == "client")]
    first = next(packet.number for packet in sent if "S" in packet.flags) + 1
    data = bytearray()
    for packet in sent:
        if packet.data:
            assert packet.number - first == len(data)
            data += packet.data
    return bytes(data)


@FAMILIES
def test_a_whole_conversation(client: Endpoint, server: Endpoint) -> None:
    events = [
        Event(1.0, "client", b"hello"),
        Event(1.5, "server", b"no"),
        Event(2.000000001, "server", "fin"),
        Event(3.0, "client", "fin"),
    ]
    found = written(Conversation(client, server, events))
    base = {client: found[0].number, server: found[1].number}
    told = [
        (
            "client" if packet.source == client else "server",
            packet.flags,
            packet.number - base[Endpoint(*packet.source)],
            packet.heard - base[Endpoint(*packet.target)] if "A" in packet.flags else None,
            packet.data,
        )
        for packet in found
    ]
    assert told == [
        ("client", "S", 0, None, b""),
        ("server", "SA", 0, 1, b""),
        ("client", "A", 1, 1, b""),
        ("client", "PA", 1, 1, b"hello"),
        ("server", "A", 1, 6, b""),
        ("server", "PA", 1, 6, b"no"),
        ("client", "A", 6, 3, b""),
        ("server", "FA", 3, 6, b""),
        ("client", "A", 6, 4, b""),
        ("client", "FA", 6, 4, b""),
        ("server", "A", 4, 7, b""),
    ]
    assert {packet.target for packet in found} == {client, server}
    assert [packet.time for packet in found if "F" in packet.flags] == [2_000_000_001, 3 * 10**9]


def test_times_have_what_a_float_has_of_a_microsecond() -> None:
    found = written(Conversation(CLIENT, SERVER, [(1_800_000_000.123456, "client", b"x")]))
    assert round(found[0].time, -3) == 1_800_000_000_123_456_000


@FAMILIES
@pytest.mark.parametrize("mss", [1, 7, 1400, 65_000])
def test_what_is_long_is_cut_and_comes_together_again(
    client: Endpoint, server: Endpoint, mss: int
) -> None:
    data = bytes(range(256)) * 300
    sent = data[: mss * 20 + 3]
    events: list[Event] = [Event(1, "client", sent), Event(2, "server", sent[::-1])]
    found = written(Conversation(client, server, events), mss=mss)
    assert max(len(packet.data) for packet in found) == min(mss, len(sent))
    assert stream(found, client, "client") == sent
    assert stream(found, client, "server") == sent[::-1]


def test_a_dial_that_is_refused() -> None:
    found = written(Conversation(CLIENT, SERVER, [(1, "client", "syn"), (2, "server", "rst")]))
    assert [packet.flags for packet in found] == ["S", "RA"]
    assert found[1].number == 0
    assert found[1].heard == found[0].number + 1


def test_a_dial_that_nobody_answers() -> None:
    found = written(Conversation(CLIENT, SERVER, [(1, "client", "syn"), (2, "client", "rst")]))
    assert [(packet.flags, packet.heard) for packet in found] == [("S", 0), ("R", 0)]


def test_a_handshake_at_its_own_times() -> None:
    events: list[tuple[float, Side, bytes]] = [(3, "client", b"x")]
    begin = [Event(1, "client", "syn"), Event(2, "server", "syn")]
    found = written(Conversation(CLIENT, SERVER, [*begin, *events]))
    assert [(packet.flags, packet.time // 10**9) for packet in found] == [
        ("S", 1),
        ("SA", 2),
        ("A", 2),
        ("PA", 3),
        ("A", 3),
    ]


def test_two_connections_between_the_same_ports_are_told_apart() -> None:
    said = [Conversation(CLIENT, SERVER, [(time, "client", b"x")]) for time in (1, 2)]
    starts = [packet.number for packet in written(*said) if "S" in packet.flags]
    assert len(set(starts)) == 4


def test_numbers_begin_anew_after_the_last() -> None:
    time = 2**32 * 4 / 10**6 - 1_000_000 * 4 / 10**6
    found = written(Conversation(CLIENT, SERVER, [(time, "client", b"x")]))
    assert [packet.number for packet in found if packet.source == CLIENT] == [0, 1, 1]
    assert found[1].heard == 1


def test_a_reset_gets_no_answer() -> None:
    found = written(Conversation(CLIENT, SERVER, [(1, "client", b"x"), (2, "server", "rst")]))
    assert found[-1].flags == "RA"
    assert found[-1].source == SERVER


def test_conversations_are_mixed_by_time() -> None:
    other = Endpoint("192.0.2.1", 50_001)
    found = written(
        Conversation(CLIENT, SERVER, [(1, "client", b"a"), (3, "client", b"c")]),
        Conversation(other, SERVER, [(2, "client", b"b")]),
    )
    assert [packet.data for packet in found if packet.data] == [b"a", b"b", b"c"]


def test_nothing_said_is_a_capture_without_packets() -> None:
    assert written() == []
    assert written(Conversation(CLIENT, SERVER, [])) == []


def test_a_path_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(bytes(10_000))
    write_pcap(path, [Conversation(CLIENT, SERVER, [(1, "client", b"x")])])
    assert len(list(packets(path.read_bytes()))) == 5


@pytest.mark.parametrize(
    ("said", "mss", "complaint"),
    [
        (Conversation(CLIENT, SERVER_6, []), 1400, "different families"),
        (Conversation(Endpoint("localhost", 1), SERVER, []), 1400, "localhost"),
        (Conversation(Endpoint("192.0.2.1", 65_536), SERVER, []), 1400, "port 65536"),
        (Conversation(CLIENT, SERVER, [(-1, "client", b"")]), 1400, "1970 to 2106"),
        (Conversation(CLIENT, SERVER, [(2.0**32, "client", b"")]), 1400, "1970 to 2106"),
        (Conversation(CLIENT, SERVER, []), 0, "0 bytes; 1 to 65000"),
        (Conversation(CLIENT, SERVER, []), 65_001, "65001 bytes; 1 to 65000"),
    ],
)
def test_what_cannot_be_written(said: Conversation, mss: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        written(said, mss=mss)
