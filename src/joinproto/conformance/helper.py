"""The program that a target's ranks run in a case: it tells the suite of itself and does its will.

It stands alone, imports nothing but the standard library and is run as a file, so that it comes up
quickly wherever the target starts it.  Its one argument is the Unix socket of the case.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import Any


def connect(path: str, parent: int | None) -> socket.socket:
    """Tell the suite who this is; what it answers are commands."""
    files = open_files()
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    facts = {
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "sid": os.getsid(0),
        "parent": parent,
        "argv": sys.argv[2:],
        "command": read("/proc/self/cmdline").replace("\0", " "),
        "cwd": os.getcwd(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "leads_group": os.getpgrp() == os.getpid(),
        "files": files,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "stdin_empty": stdin_is_empty(),
        "env": dict(os.environ),
        "env_besides": "\n".join(f"{name}={os.environ[name]}" for name in besides()),
    }
    sock.sendall(json.dumps(facts).encode() + b"\n")
    return sock


def besides() -> list[str]:
    """Names of the variables that are neither envelope nor relay spec."""
    artifacts = ("FLODL_INTERNAL_CLUSTER_JSON", "FLODL_INTERNAL_RELAY_JSON")
    return [name for name in os.environ if name not in artifacts]


def open_files() -> list[int]:
    """Descriptors that are open besides the standard streams."""
    with os.scandir("/proc/self/fd") as entries:
        found = [int(entry.name) for entry in entries]
    # The one with which they were listed is gone by now.
    return [fd for fd in found if fd > 2 and os.path.lexists(f"/proc/self/fd/{fd}")]


def stdin_is_empty() -> bool:
    """Whether reading from standard input finds its end, without waiting for it."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    return bool(poll.poll(0)) and os.read(0, 1) == b""


def read(path: str) -> str:
    """The text of a file."""
    with open(path, errors="backslashreplace") as file:
        return file.read()


def obey(sock: socket.socket, path: str) -> None:
    """Do what the suite says, until it hangs up."""
    with sock, sock.makefile("rb") as lines:
        for line in lines:
            for command in json.loads(line):
                do(command, path, sock)
            sock.sendall(b"done\n")


def do(command: dict[str, Any], path: str, sock: socket.socket) -> None:
    """One command: its only key says what."""
    match command:
        case {"exit": code}:
            os._exit(code)
        case {"signal": name}:
            os.kill(os.getpid(), signal.Signals[f"SIG{name}"])
        case {"ignore": name}:
            signal.signal(signal.Signals[f"SIG{name}"], signal.SIG_IGN)
        case {"write": what}:
            write(1 if what.get("stream", "stdout") == "stdout" else 2, what)
        case {"fork": how}:
            fork(how, path, sock)
        case _:
            os._exit(99)


def write(stream: int, what: dict[str, Any]) -> None:
    """Write bytes, all of them."""
    data = bytes.fromhex(what["hex"]) if "hex" in what else what["text"].encode()
    left = memoryview(data * what.get("times", 1))
    while left:
        left = left[os.write(stream, left) :]


def fork(how: dict[str, Any], path: str, sock: socket.socket) -> None:
    """Start a process that goes its own ways: in a session of its own, or behind a parent's back.

    It is there, and has told the suite so, when this returns.
    """
    parent = os.getpid()
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)
        return
    sock.detach()
    os.closerange(3, tell)
    if how.get("session"):
        os.setsid()
    if how.get("twice") and os.fork():
        os._exit(0)
    if not how.get("output"):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
    if how.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    own = connect(path, parent)
    os.close(tell)
    try:
        obey(own, path)
    finally:
        os._exit(0)


if __name__ == "__main__":
    obey(connect(sys.argv[1], None), sys.argv[1])
