"""What measurements share: a controller's end of a link, and what figures depend on."""

from __future__ import annotations

import compileall
import os
import platform
import socket
import time
from pathlib import Path
from typing import Self

import joinproto
from joinproto.codec import decode_payload, encode
from joinproto.framing import Framer
from joinproto.keys import OPEN, Salt
from joinproto.messages import Message

PEER = "0.7.0"
"""The published version that is measured against."""

DEADLINE = 30.0
"""Seconds after which whatever is waited for counts as never coming."""

MAGIC_BYTES = 4
"""What a dial begins with, before the first frame."""

RECEIVE_BYTES = 65536


def compile_bytecode() -> None:
    """Compile joinproto, as an installed package is.

    Where Python writes no bytecode, every start would compile anew.
    """
    compileall.compile_dir(Path(joinproto.__file__).parent, quiet=1)


def machine() -> dict[str, object]:
    """What figures depend on besides the programs measured."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
    }


def listen() -> socket.socket:
    """A listener on a free port of loopback, which gives up after `DEADLINE`."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(DEADLINE)
    return listener


class Link:
    """The controller's end of a connection: blocking, and with the time at which bytes came.

    Attributes:
        received_at: `time.perf_counter()` when the last bytes were received.
        wire: the version of the last frame received.
        key: what frames sent are tagged with; the tags of those received are not looked at.
    """

    def __init__(self, listener: socket.socket) -> None:
        """Wait for a dial.

        Raises:
            OSError: none came in time.
        """
        self._sock, _ = listener.accept()
        self._sock.settimeout(DEADLINE)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._framer = Framer()
        self._magic = MAGIC_BYTES
        self.received_at = 0.0
        self.wire = 0
        self.key: Salt = OPEN

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._sock.close()

    def receive(self) -> Message:
        """Wait for the next message.

        Raises:
            EOFError: the agent ended the connection.
            OSError: nothing came in time, or the connection broke.
        """
        while (frame := self._framer.next_frame()) is None:
            data = self._sock.recv(RECEIVE_BYTES)
            self.received_at = time.perf_counter()
            if not data:
                raise EOFError("the agent ended the connection")
            magic, self._magic = self._magic, max(0, self._magic - len(data))
            self._framer.feed(data[magic:])
        self.wire = frame.wire
        return decode_payload(frame.payload, wire=frame.wire).message

    def send(self, message: Message) -> None:
        """Send a message in the version that the agent speaks."""
        self._sock.sendall(encode(message, key=self.key, wire=self.wire))
