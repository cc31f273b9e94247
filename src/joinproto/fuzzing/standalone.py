"""Repeats one finding of joinproto's fuzz harness, with Python's standard library alone.

usage: python3 SCRIPT HOST:PORT [--salt-file FILE]          (what was found is about a controller)
       python3 SCRIPT [--salt-file FILE] -- COMMAND …       (… about an agent, which it starts)

Of an agent's COMMAND, {helper} becomes what its ranks are to run.

Exit code: 1 it strikes again, 0 it does not, 2 wrong usage, or it takes a look from outside to say.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

CASE: dict[str, Any] = {}

MARK = "00112233445566778899aabbccddeeff"
"""Stands in payloads where the session salt of the run belongs."""

MESSAGES = ("Hello", "Accept", "Reject", "WorldFormed", "RankExited", "Abort")
MAGIC = 0xF10D17C4
JOIN = "e3170df1"
PATIENCE = 5.0

HELPER = """
place=${FLODL_INTERNAL_LOCAL_RANK:-relay}
trap 'exit $(cat "$0/exit.$place")' USR1
trap 'trap "" TERM' USR2
echo $$ > "$0/pid.$place"
while :; do sleep 0.05; done
"""


class Link:
    """One connection, and what the target did on it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.data = b""
        self.ended = ""
        self.closed = False
        self.head = b""
        sock.settimeout(0.01)

    def hear(self, within: float) -> None:
        """Read what comes, until there is something new or the time is over."""
        due, before = time.monotonic() + within, len(self.data)
        while not (self.ended or self.closed) and time.monotonic() < due:
            try:
                data = self.sock.recv(65536)
            except TimeoutError:
                if len(self.data) > before:
                    return
                continue
            except OSError as error:
                self.ended = "reset: " + str(error)
                return
            self.data += data
            if not data:
                self.ended = "end of the stream"

    def messages(self) -> list[tuple[str, bytes]]:
        """Names and payloads of the frames so far."""
        found, place = [], 4 if self.data[:4].hex() == JOIN else 0
        while len(self.data) >= place + 24:
            size = struct.unpack_from("<I", self.data, place + 20)[0]
            payload = self.data[place + 24 : place + 24 + size]
            if len(payload) < size:
                break
            known = payload and payload[0] < len(MESSAGES)
            found.append((MESSAGES[payload[0]] if known else "?", payload))
            place += 24 + size
        return found


class Play:
    """The case, step by step."""

    def __init__(self, address: tuple[str, int], salt: bytes | None, folder: str) -> None:
        self.address = address
        self.folder = folder
        self.links: dict[str, Link] = {}
        self.salt = salt
        self.session = salt or bytes.fromhex(MARK)
        self.listener = socket.socket()
        self.process: subprocess.Popen[bytes] | None = None

    # -- what is sent -------------------------------------------------------------------------

    def key(self, name: str) -> bytes:
        other = hashlib.sha256(b"other").digest()[:16]
        join = self.salt or bytes(16)
        return {"join": join, "session": self.session, "zero": bytes(16), "other": other}[name]

    def payload(self, digits: str) -> bytes:
        """A payload, with the salt of this run in the place of the mark."""
        data, salt = bytes.fromhex(digits), self.session.hex().encode()
        mark = MARK.encode()
        return data.replace(mark, salt).replace(mark.hex().encode(), salt.hex().encode())

    def frame(self, step: dict[str, Any]) -> bytes:
        payload = self.payload(step["payload"]) + bytes.fromhex(step.get("behind", ""))
        kind, size = step.get("kind", 7), len(payload)
        covered = struct.pack("<II", kind, size) + payload
        tag = hmac.new(self.key(step["key"]), covered, hashlib.sha256).digest()[:8]
        if step.get("tag") == "flipped":
            tag = tag[:7] + bytes((tag[7] ^ 1,))
        elif "tag" in step:
            tag = bytes.fromhex(step["tag"])
        magic, size = step.get("magic", MAGIC), step.get("length", size)
        head = struct.pack("<II", magic, step["wire"]) + tag + struct.pack("<II", kind, size)
        return (head + payload)[: step.get("cut")]

    def send(self, step: dict[str, Any], data: bytes) -> None:
        link = self.links.get(step["on"])
        if link is None or link.closed:
            return
        size = step.get("chunk") or len(data) or 1
        print(f"{step['on']} >> {len(data)} bytes: {data[:64].hex()}")
        for start in range(0, len(data), size):
            try:
                link.sock.sendall(data[start : start + size])
            except OSError as error:
                print(f"{step['on']}: {error}")
                return
            time.sleep(step.get("pause", 0.0))

    # -- acts ---------------------------------------------------------------------------------

    def do(self, step: dict[str, Any]) -> None:
        getattr(self, "do_" + step["do"])(step)
        for name, link in self.links.items():
            link.hear(0.02)
            if name == step.get("on") and step["do"] in ("frame", "send"):
                link.hear(step["due"])
            self.learn(link)

    def learn(self, link: Link) -> None:
        """In open admission the session salt is the one that a controller has given out."""
        for name, payload in link.messages():
            digits = [
                payload[at : at + 32]
                for at in range(len(payload) - 31)
                if all(each in b"0123456789abcdef" for each in payload[at : at + 32])
            ]
            if name == "Accept" and digits and CASE["role"] == "controller" and not self.salt:
                self.session = bytes.fromhex(digits[0].decode())

    def do_dial(self, step: dict[str, Any]) -> None:
        old = self.links.pop(step["on"], None)
        if old is not None:
            old.sock.close()
        self.links[step["on"]] = Link(socket.create_connection(self.address, 5))
        self.send(step, bytes.fromhex(step["magic"]))

    def do_accept(self, step: dict[str, Any]) -> None:
        self.listener.settimeout(step["within"])
        try:
            while True:
                link = Link(self.listener.accept()[0])
                link.hear(PATIENCE)
                if len(link.data) < 12 or link.data[8] == CASE["wire"]:
                    break
                link.sock.close()  # it offers another version first
        except TimeoutError:
            print(f"no dial within {step['within']:g} s")
            return
        self.links[step["on"]] = link

    def do_frame(self, step: dict[str, Any]) -> None:
        self.send(step, self.frame(step))

    def do_send(self, step: dict[str, Any]) -> None:
        self.send(step, bytes.fromhex(step["bytes"]))

    def do_half_close(self, step: dict[str, Any]) -> None:
        self.end(step["on"], lambda sock: sock.shutdown(socket.SHUT_WR))

    def do_close(self, step: dict[str, Any]) -> None:
        self.end(step["on"], socket.socket.close, closed=True)

    def do_reset(self, step: dict[str, Any]) -> None:
        linger = struct.pack("ii", 1, 0)

        def reset(sock: socket.socket) -> None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            sock.close()

        self.end(step["on"], reset, closed=True)

    def end(self, name: str, act: Callable[[socket.socket], None], closed: bool = False) -> None:
        link = self.links.get(name)
        if link is not None and not link.closed:
            link.closed = closed
            try:
                act(link.sock)
            except OSError as error:
                print(f"{name}: {error}")

    def do_wait(self, step: dict[str, Any]) -> None:
        time.sleep(step["seconds"])

    def do_look(self, step: dict[str, Any]) -> None:
        if step["on"] in self.links:
            self.links[step["on"]].hear(step["within"])

    def do_listen(self, step: dict[str, Any]) -> None:
        self.listener.listen(16)

    def do_signal(self, step: dict[str, Any]) -> None:
        if self.process is None:
            print(f"send the target SIG{step['name']} now, and press Enter")
            sys.stdin.readline()
        elif self.process.poll() is None:
            self.process.send_signal(getattr(signal, "SIG" + step["name"]))

    def do_rank(self, step: dict[str, Any]) -> None:
        path = os.path.join(self.folder, "pid." + step["name"])
        due = time.monotonic() + 2.0
        while not (os.path.exists(path) and os.path.getsize(path)):
            if time.monotonic() > due:
                return
            time.sleep(0.01)
        with open(path) as file:
            pid = int(file.read())
        for act in step["acts"]:
            if "exit" in act:
                with open(os.path.join(self.folder, "exit." + step["name"]), "w") as file:
                    file.write(str(act["exit"]))
                os.kill(pid, signal.SIGUSR1)
            elif "signal" in act:
                os.kill(pid, getattr(signal, "SIG" + act["signal"]))
            elif "ignore" in act:
                os.kill(pid, signal.SIGUSR2)
            else:
                print(f"left out: a process of the target was to do {act}")

    # -- the whole ----------------------------------------------------------------------------

    def start(self, command: list[str]) -> None:
        """Start an agent, with its settings in the environment as a launcher hands them out."""
        self.listener.bind(("127.0.0.1", 0))
        if CASE["listening"]:
            self.listener.listen(16)
        spec = {
            "host": "target",
            "controller_host": "127.0.0.1",
            "controller_port": self.listener.getsockname()[1],
            "local_devices": list(range(CASE["devices"])),
        }
        if self.salt:
            spec["salt_hex"] = self.salt.hex()
        helper = ["/bin/sh", "-c", HELPER, self.folder]
        words = [word for given in command for word in (helper if given == "{helper}" else [given])]
        variables = dict(os.environ, FLODL_NET_TIMEOUT_SCALE=str(CASE["scale"]))
        variables["FLODL_INTERNAL_AGENT_JSON"] = json.dumps(spec).encode().hex()
        self.process = subprocess.Popen(words, env=variables, start_new_session=True)

    def play(self) -> None:
        """Do the steps, and then send no more on what is still open."""
        for step in CASE["steps"]:
            self.do(step)
        for link in self.links.values():
            self.learn(link)
        for name in self.links:
            self.end(name, lambda sock: sock.shutdown(socket.SHUT_WR))
        for name, link in self.links.items():
            while not (link.ended or link.closed) and self.more(link):
                pass
            names = ", ".join(each for each, _ in link.messages()) or "nothing"
            print(f"{name} << {names}; {link.ended or 'still open'}")

    def more(self, link: Link) -> bool:
        before = len(link.data)
        link.hear(PATIENCE)
        return len(link.data) > before

    def close(self) -> None:
        for link in self.links.values():
            link.sock.close()
        self.listener.close()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    # -- whether it strikes -------------------------------------------------------------------

    def strikes(self) -> bool | None:
        """True, False, or None where nobody can tell from here."""
        oracle = CASE["oracle"]
        if oracle == "died":
            return self.has_died()
        if oracle == "hung":
            open_yet = [link for link in self.links.values() if not (link.ended or link.closed)]
            return bool(open_yet) or (CASE["ends"] and self.runs_on())
        if oracle == "deaf":
            return not self.is_honestly_met()
        if oracle == "left-behind":
            if self.runs_on():
                return False
            time.sleep(1.0)  # they have been told, and may be at it
            return bool(self.ranks())
        if oracle in ("memory", "leaked", "flooded", "started"):
            return None
        return any(self.says_more(name) for name in self.links)

    def has_died(self) -> bool:
        if self.process is not None:
            if self.runs_on():
                return False
            return bool(self.process.returncode != CASE["exit_expected"])
        # A process that is about to die may still be at it.
        due = time.monotonic() + PATIENCE
        while time.monotonic() < due:
            try:
                socket.create_connection(self.address, 2).close()
            except OSError:
                return True
            time.sleep(0.1)
        return False

    def runs_on(self) -> bool:
        if self.process is None:
            return False
        try:
            print(f"the target ended with {self.process.wait(PATIENCE * 2)}")
        except subprocess.TimeoutExpired:
            return True
        return False

    def is_honestly_met(self) -> bool:
        try:
            link = Link(socket.create_connection(self.address, 5))
        except OSError:
            return False
        step = CASE["honest"]
        link.sock.sendall(bytes.fromhex(JOIN) + self.frame(step))
        link.hear(PATIENCE)
        link.sock.close()
        return bool(link.messages()) and link.messages()[0][0] == "Accept"

    def ranks(self) -> list[int]:
        """Processes of ranks that are still there."""
        there = []
        for name in os.listdir(self.folder):
            if name.startswith("pid."):
                with open(os.path.join(self.folder, name)) as file:
                    pid = int(file.read())
                try:
                    os.kill(pid, 0)
                    there.append(pid)
                except OSError:
                    pass
        for pid in there:
            print(f"process {pid} is still there")
            os.kill(pid, signal.SIGKILL)
        return there

    def says_more(self, name: str) -> bool:
        said = [each for each, _ in self.links[name].messages()]
        should = list(CASE["expected"].get(name, []))
        for each in should:
            if each in said:
                said.remove(each)
        return bool(said)


def main(arguments: list[str]) -> int:
    """Play the case, and say whether it strikes."""
    own, command = arguments, []
    if "--" in arguments:
        own, command = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    salt, rest = None, list(own)
    if "--salt-file" in rest:
        place = rest.index("--salt-file")
        if place + 1 < len(rest):
            with open(rest[place + 1]) as file:
                salt = bytes.fromhex(file.read().strip())
        del rest[place : place + 2]
    agent = CASE["role"] == "agent"
    if (agent and (rest or not command)) or (not agent and (len(rest) != 1 or command)):
        print(__doc__)
        return 2
    if (CASE["admission"] != "open") != (salt is not None):
        print(f"this was found in {CASE['admission']} admission: see --salt-file")
        return 2
    address = ("", 0)
    if not agent:
        host, _, port = rest[0].rpartition(":")
        address = (host.strip("[]"), int(port))
    print(f"looking for: {CASE['what']}")
    with tempfile.TemporaryDirectory() as folder:
        play = Play(address, salt, folder)
        try:
            if agent:
                play.start(command)
            for _ in range(CASE["repeats"]):
                play.play()
            struck = play.strikes()
        finally:
            play.close()
            if agent:
                play.ranks()
    told = {True: "it strikes again", False: "it does not strike", None: "see for yourself"}
    print(told[struck])
    return {True: 1, False: 0, None: 2}[struck]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
