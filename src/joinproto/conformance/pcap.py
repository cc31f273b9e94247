"""Conversations over TCP as a capture file, for Wireshark and what else reads one.

The bytes are those that an endpoint saw; the packets around them are made up: addresses, sequence
and acknowledgement numbers, checksums and the cuts between segments are right, and nothing is lost,
late or sent twice.

Format: libpcap with times in nanoseconds and link type 101 (LINKTYPE_RAW), whose packets begin with
an IP header: https://www.tcpdump.org/linktypes.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from struct import Struct, unpack
from typing import IO, Literal, NamedTuple, TypeAlias

Side: TypeAlias = Literal["client", "server"]
Mark: TypeAlias = Literal["syn", "fin", "rst"]

MAGIC_NANOSECONDS = 0xA1B23C4D
LINKTYPE_RAW = 101
SNAPLEN = 262_144

MSS = 1400
"""Bytes in a segment, unless told otherwise; with headers, less than an Ethernet frame holds."""

MAX_MSS = 65_000
"""An IP packet is at most 65,535 bytes, headers included."""

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
FLAGS: dict[Mark, int] = {"syn": SYN, "fin": FIN, "rst": RST}
TCP = 6
HOPS = 64
WINDOW = 65_535
FIRST_NUMBERS: dict[Side, int] = {"client": 1_000_000, "server": 2_000_000}
SEQUENCE_END = 2**32

FILE_HEADER = Struct("<IHHiIII")
PACKET_HEADER = Struct("<IIII")
IPV4 = Struct("!BBHHHBBH4s4s")
IPV6 = Struct("!IHBB16s16s")
SEGMENT = Struct("!HHIIBBHHH")


class Endpoint(NamedTuple):
    """One end of a conversation: a numeric address and a port."""

    host: str
    port: int


class Event(NamedTuple):
    """What one end sent.

    Attributes:
        time: seconds since the epoch.
        side: who sent it.
        what: bytes; or the begin, the end or the breaking off of its direction.
    """

    time: float
    side: Side
    what: bytes | Mark


class Conversation(NamedTuple):
    """A connection, or the attempt at one.

    Attributes:
        client: the end that dialed.
        server: the other.
        events: in order of time.  Where there is no "syn" among them, the handshake stands in front
            of the first; with them, a "syn" of the client is the dial and one of the server its
            answer.
    """

    client: Endpoint
    server: Endpoint
    events: Sequence[Event | tuple[float, Side, bytes | Mark]]


def write_pcap(
    target: Path | IO[bytes], conversations: Iterable[Conversation], *, mss: int = MSS
) -> None:
    """Write the conversations as packets in order of time.

    Args:
        target: the file, or where it is to be made; one that is there is overwritten.
        conversations: what was said.
        mss: most bytes of a segment, 1 to 65,000.

    Raises:
        ValueError: an address is none, the two of a conversation are of different families, a port
            or `mss` is out of range, or a time is before 1970 or after 2106.
    """
    if not 1 <= mss <= MAX_MSS:
        raise ValueError(f"segments of {mss} bytes; 1 to {MAX_MSS} is possible")
    packets = sorted(
        (packet for said in conversations for packet in _Sender(said, mss).packets()),
        key=lambda packet: packet[0],
    )
    if isinstance(target, Path):
        with target.open("wb") as file:
            _write(file, packets)
    else:
        _write(target, packets)


def _write(file: IO[bytes], packets: Iterable[tuple[int, bytes]]) -> None:
    file.write(FILE_HEADER.pack(MAGIC_NANOSECONDS, 2, 4, 0, 0, SNAPLEN, LINKTYPE_RAW))
    for time, packet in packets:
        seconds, nanoseconds = divmod(time, 10**9)
        file.write(PACKET_HEADER.pack(seconds, nanoseconds, len(packet), len(packet)) + packet)


class _Sender:
    """The two ends of a conversation, as far as their numbers go."""

    def __init__(self, said: Conversation, mss: int) -> None:
        self._ends: dict[Side, Endpoint] = {"client": said.client, "server": said.server}
        self._hosts = {side: ip_address(end.host) for side, end in self._ends.items()}
        self._check()
        self._events = [Event(*event) for event in said.events]
        self._mss = mss
        # RFC 9293, 3.4.1: so many that a reader tells two connections between the same ports apart.
        clock = round(self._events[0].time * 10**6) // 4 if self._events else 0
        self._next = {side: (first + clock) % SEQUENCE_END for side, first in FIRST_NUMBERS.items()}
        self._begun: set[Side] = set()

    def _check(self) -> None:
        client, server = self._ends.values()
        if len({host.version for host in self._hosts.values()}) > 1:
            raise ValueError(f"{client.host} and {server.host} are of different families")
        for end in (client, server):
            if not 0 <= end.port <= 65_535:
                raise ValueError(f"port {end.port}; 0 to 65535 is possible")

    def packets(self) -> Iterator[tuple[int, bytes]]:
        """Time in nanoseconds since the epoch, and the packet."""
        for event in self._with_handshake():
            time = round(event.time * 10**9)
            if not 0 <= time < SEQUENCE_END * 10**9:
                raise ValueError(f"time {event.time}; a capture has 1970 to 2106")
            for packet in self._sent(event.side, event.what):
                yield time, packet

    def _with_handshake(self) -> list[Event]:
        if not self._events or any(event.what == "syn" for event in self._events):
            return self._events
        start = self._events[0].time
        return [Event(start, "client", "syn"), Event(start, "server", "syn"), *self._events]

    def _sent(self, side: Side, what: bytes | Mark) -> Iterator[bytes]:
        """What `side` sends, and what the other end says to have received it."""
        if isinstance(what, bytes):
            for start in range(0, len(what), self._mss):
                yield self._segment(side, PSH, what[start : start + self._mss])
                yield self._segment(_other(side), 0)
            return
        yield self._segment(side, FLAGS[what])
        # A dial gets the answer that the server has among the events, if any; a reset gets none.
        if what == "fin" or (what == "syn" and side == "server"):
            yield self._segment(_other(side), 0)

    def _segment(self, side: Side, flags: int, data: bytes = b"") -> bytes:
        other = _other(side)
        if flags & SYN:
            self._begun.add(side)
        # What refuses a dial has no number of its own: RFC 9293, 3.5.2.
        number = self._next[side] if side in self._begun else 0
        heard = 0
        if other in self._begun:
            flags |= ACK
            heard = self._next[other]
        used = len(data) + bool(flags & (SYN | FIN))
        self._next[side] = (self._next[side] + used) % SEQUENCE_END
        source, target = self._ends[side].port, self._ends[other].port
        offset = SEGMENT.size // 4 << 4
        fields = (source, target, number, heard, offset, flags, WINDOW)
        checked = self._pseudo_header(side, other, SEGMENT.size + len(data))
        checksum = _checksum(checked + SEGMENT.pack(*fields, 0, 0) + data)
        return self._packet(side, other, SEGMENT.pack(*fields, checksum, 0) + data)

    def _pseudo_header(self, side: Side, other: Side, size: int) -> bytes:
        """What the checksum covers besides the segment: RFC 9293, 3.1, and RFC 8200, 8.1."""
        ends = self._hosts[side].packed + self._hosts[other].packed
        return ends + size.to_bytes(4, "big") + TCP.to_bytes(4, "big")

    def _packet(self, side: Side, other: Side, segment: bytes) -> bytes:
        source, target = self._hosts[side], self._hosts[other]
        if isinstance(source, IPv6Address):
            return _ipv6(source.packed, target.packed, segment)
        return _ipv4(source, target.packed, segment)


def _other(side: Side) -> Side:
    return "server" if side == "client" else "client"


def _ipv4(source: IPv4Address, target: bytes, segment: bytes) -> bytes:
    fields = (0x45, 0, IPV4.size + len(segment), 0, 0x4000, HOPS, TCP)  # 0x4000: don't fragment
    checksum = _checksum(IPV4.pack(*fields, 0, source.packed, target))
    return IPV4.pack(*fields, checksum, source.packed, target) + segment


def _ipv6(source: bytes, target: bytes, segment: bytes) -> bytes:
    return IPV6.pack(6 << 28, len(segment), TCP, HOPS, source, target) + segment


def _checksum(data: bytes) -> int:
    """RFC 1071: the ones' complement of the ones' complement sum of the 16-bit words."""
    even = data + b"\0" * (len(data) % 2)
    total: int = sum(unpack(f"!{len(even) // 2}H", even))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF
