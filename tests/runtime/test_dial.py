"""dial: every address of a name, within one time limit, and a resolver that may block."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from joinproto.runtime.dial import STAGGER, Address, Dialer, Resolve, resolve
from joinproto.runtime.loop import READ, Loop
from tests.support.python import PATIENCE
from tests.support.tcp import (
    LOOPBACK,
    black_hole,
    has_ipv6,
    listening,
    no_more_descriptors,
    refusing,
    run_until,
)

RESOLVER_THREAD = "joinproto-resolver"


class Attempt(Dialer):
    """A dial that keeps what came of it."""

    def __init__(self, loop: Loop, host: str, port: int, resolver: Resolve = resolve) -> None:
        self.loop = loop
        self.results: list[tuple[socket.socket | None, str]] = []
        super().__init__(
            loop, host, port, lambda *result: self.results.append(result), resolver=resolver
        )

    def finish(self) -> tuple[socket.socket | None, str]:
        """How it ends, when no deadline comes."""
        run_until(self.loop, lambda: self.results, "the end of the attempt")
        assert self.next_timer is None
        self.handle_timer(self.loop.now() + 2 * PATIENCE)
        self.loop.run_once(self.loop.now())
        assert len(self.results) == 1
        return self.results[0]

    def connects_to(self, port: int) -> None:
        """It ends well, and there."""
        sock, cause = self.finish()
        assert sock is not None, cause
        with sock:
            assert cause == ""
            assert sock.getpeername()[1] == port
            assert not sock.getblocking()

    def fails(self) -> str:
        """The cause with which it ends ill."""
        sock, cause = self.finish()
        assert sock is None
        return cause

    def expire(self) -> None:
        """Have what comes next on its clock come now."""
        assert self.next_timer is not None
        self.handle_timer(self.next_timer)


def at(*ports: int) -> list[Address]:
    """IPv4 loopback with these ports."""
    return [(socket.AF_INET, (LOOPBACK, port)) for port in ports]


def begin(loop: Loop, addresses: list[Address]) -> Attempt:
    """An attempt at a name with these addresses, as far as it goes by itself."""
    attempt = Attempt(loop, "node1", 7000, lambda host, port: addresses)
    attempt.start(PATIENCE)
    start = attempt.next_timer
    run_until(loop, lambda: attempt.next_timer != start, "the name is resolved")
    return attempt


def asks_nobody(host: str, port: int) -> NoReturn:
    raise AssertionError(f"asked for {host}")


@pytest.fixture(autouse=True)
def no_resolver_is_left() -> Iterator[None]:
    """The threads of abandoned lookups end, and close what they hold, before that is checked."""
    yield
    for thread in threading.enumerate():
        if thread.name == RESOLVER_THREAD:
            thread.join(PATIENCE)


# -- one address ------------------------------------------------------------------------------


def test_a_numeric_address_is_dialed_without_asking_anybody(loop: Loop) -> None:
    with listening() as port:
        attempt = Attempt(loop, LOOPBACK, port, asks_nobody)
        attempt.start(PATIENCE)
        attempt.connects_to(port)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_ipv6(loop: Loop) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        port = listener.getsockname()[1]
        attempt = Attempt(loop, "::1", port, asks_nobody)
        attempt.start(PATIENCE)
        attempt.connects_to(port)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_ipv6_refused(loop: Loop) -> None:
    with refusing("::1") as port:
        attempt = Attempt(loop, "::1", port, asks_nobody)
        attempt.start(PATIENCE)
        assert attempt.fails() == f"cannot connect to [::1]:{port}: Connection refused"


def test_refused(loop: Loop) -> None:
    with refusing() as port:
        attempt = Attempt(loop, LOOPBACK, port, asks_nobody)
        attempt.start(PATIENCE)
        assert attempt.fails() == f"cannot connect to {LOOPBACK}:{port}: Connection refused"


def test_a_network_that_cannot_be_reached(loop: Loop) -> None:
    """Broadcasts have no TCP: the system refuses at once, and so before `start` returns."""
    attempt = Attempt(loop, "255.255.255.255", 7000, asks_nobody)
    attempt.start(PATIENCE)
    assert attempt.results == [
        (None, "cannot connect to 255.255.255.255:7000: Network is unreachable")
    ]
    assert attempt.next_timer is None


def test_nobody_answers(loop: Loop) -> None:
    with black_hole() as port:
        attempt = Attempt(loop, LOOPBACK, port, asks_nobody)
        before = loop.now()
        attempt.start(2.5)
        assert attempt.next_timer is not None
        assert before + 2.5 > attempt.next_timer  # nobody to try beside it, but that is not known
        attempt.expire()
        assert attempt.next_timer is not None
        assert before + 2.5 <= attempt.next_timer <= loop.now() + 2.5
        attempt.handle_timer(attempt.next_timer - 0.001)
        assert not attempt.results
        attempt.expire()
        assert (
            attempt.fails() == f"cannot connect to {LOOPBACK}:{port}: timed out trying to connect"
        )


def test_no_descriptor_for_a_socket(loop: Loop) -> None:
    attempt = Attempt(loop, LOOPBACK, 7000, asks_nobody)
    with no_more_descriptors():
        attempt.start(PATIENCE)
    assert attempt.fails() == f"cannot connect to {LOOPBACK}:7000: Too many open files"


def test_a_connection_that_stands_at_once(loop: Loop, tmp_path: Path) -> None:
    """As TCP's never does on Linux, though it may."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        address: Address = (socket.AF_UNIX, path)  # type: ignore[assignment]
        attempt = Attempt(loop, "node1", 7000, lambda host, port: [address, *at(1)])
        attempt.start(PATIENCE)
        sock, cause = attempt.finish()
        assert sock is not None
        assert cause == ""
        sock.close()


# -- several addresses ------------------------------------------------------------------------


def test_the_first_refuses(loop: Loop) -> None:
    with refusing() as wrong, listening() as right:
        begin(loop, at(wrong, right)).connects_to(right)


def test_the_first_is_of_a_family_that_is_not_there(loop: Loop) -> None:
    with listening() as port:
        begin(loop, [(9999, ("node1",)), *at(port)]).connects_to(port)


def test_the_first_cannot_be_reached(loop: Loop) -> None:
    with listening() as port:
        begin(loop, [(socket.AF_INET, ("255.255.255.255", 1)), *at(port)]).connects_to(port)


def test_the_first_does_not_answer(loop: Loop) -> None:
    with black_hole() as silent, listening() as right:
        attempt = begin(loop, at(silent, right))
        assert attempt.next_timer is not None
        assert loop.now() - 1 < attempt.next_timer - STAGGER <= loop.now()
        attempt.handle_timer(attempt.next_timer - 0.001)
        assert not attempt.results
        attempt.expire()
        attempt.connects_to(right)


def test_all_fail_and_the_last_cause_is_told(loop: Loop) -> None:
    with refusing() as port:
        attempt = begin(loop, [*at(port), (socket.AF_INET, ("255.255.255.255", 1))])
        assert attempt.fails() == "cannot connect to node1:7000: Network is unreachable"


def test_a_silent_one_is_waited_for_when_the_others_have_failed(loop: Loop) -> None:
    with black_hole() as silent, refusing() as wrong:
        attempt = begin(loop, at(silent, wrong, wrong))
        first = attempt.next_timer
        attempt.expire()
        # Both others refuse; from then on only the deadline is left.
        run_until(
            loop,
            lambda: attempt.next_timer and first and attempt.next_timer > first + PATIENCE / 2,
            "both have refused",
        )
        assert not attempt.results
        attempt.expire()
        assert attempt.fails() == "cannot connect to node1:7000: timed out trying to connect"


def test_many_that_are_silent_share_one_deadline(loop: Loop) -> None:
    with black_hole() as port:
        attempt = Attempt(loop, "node1", 7000, lambda *_: at(*[port] * 10))
        attempt.start(3.0)
        deadline = attempt.next_timer
        assert deadline is not None
        run_until(loop, lambda: attempt.next_timer != deadline, "the name is resolved")
        for _ in range(3):
            attempt.expire()
        attempt.handle_timer(deadline)
        assert attempt.fails() == "cannot connect to node1:7000: timed out trying to connect"


# -- names ------------------------------------------------------------------------------------


def test_the_resolver_of_the_system(loop: Loop) -> None:
    found = resolve("localhost", 7000)
    assert found
    assert {address[1] for _, address in found} == {7000}
    assert {family for family, _ in found} <= {socket.AF_INET, socket.AF_INET6}
    with listening() as port:
        attempt = Attempt(loop, "localhost", port)
        attempt.start(PATIENCE)
        # Where localhost is ::1 first, that one refuses.
        attempt.connects_to(port)


def test_the_resolver_is_asked_for_host_and_port(loop: Loop) -> None:
    asked: list[tuple[str, int]] = []

    def answers(host: str, port: int) -> list[Address]:
        asked.append((host, port))
        return []

    attempt = Attempt(loop, "node1", 7000, answers)
    attempt.start(PATIENCE)
    assert attempt.fails() == "cannot connect to node1:7000: no address answered"
    assert asked == [("node1", 7000)]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (
            socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
            "cannot resolve node1: Temporary failure in name resolution",
        ),
        (OSError(errno.EMFILE, "Too many open files"), "cannot resolve node1: Too many open files"),
        (OSError("no words"), "cannot resolve node1: no words"),
        (UnicodeError("label too long"), "cannot resolve 'node1': it is no host name"),
    ],
)
def test_a_name_that_cannot_be_resolved(loop: Loop, error: Exception, cause: str) -> None:
    def fails(host: str, port: int) -> NoReturn:
        raise error

    attempt = Attempt(loop, "node1", 7000, fails)
    attempt.start(PATIENCE)
    assert attempt.fails() == f"cannot connect to node1:7000: {cause}"


@pytest.mark.parametrize("host", ["x" * 64 + ".org", "a..b", "a\0b", "\ud800", "127.0.0.1\0"])
def test_what_can_be_no_name(loop: Loop, host: str) -> None:
    attempt = Attempt(loop, host, 7000)
    attempt.start(PATIENCE)
    assert attempt.fails().endswith(f"cannot resolve {host!r}: it is no host name")


def test_no_descriptors_for_a_lookup(loop: Loop) -> None:
    attempt = Attempt(loop, "node1", 7000, asks_nobody)
    with no_more_descriptors():
        attempt.start(PATIENCE)
    cause = "cannot resolve node1: Too many open files"
    assert attempt.fails() == f"cannot connect to node1:7000: {cause}"


def test_no_thread_for_a_lookup(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    attempt = Attempt(loop, "node1", 7000, asks_nobody)
    attempt.start(PATIENCE)
    cause = "cannot resolve node1: can't start new thread"
    assert attempt.fails() == f"cannot connect to node1:7000: {cause}"


class Slow:
    """A resolver that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answer = threading.Event()

    def __call__(self, host: str, port: int) -> list[Address]:
        self.asked.set()
        self.answer.wait(PATIENCE)
        return at(1)

    def close(self) -> None:
        self.answer.set()


def test_a_resolver_that_blocks_does_not_block_the_loop(loop: Loop) -> None:
    with closing(Slow()) as slow:
        attempt = Attempt(loop, "node1", 7000, slow)
        attempt.start(3.0)
        deadline = attempt.next_timer
        assert deadline is not None
        assert slow.asked.wait(PATIENCE)
        reader, writer = os.pipe()
        os.close(writer)
        served: list[int] = []
        loop.watch(reader, READ, served.append)
        loop.run_once(None)
        loop.forget(reader)
        os.close(reader)
        assert served
        attempt.handle_timer(deadline - 0.001)
        assert not attempt.results
        attempt.handle_timer(deadline)
        cause = "timed out trying to resolve the name"
        assert attempt.fails() == f"cannot connect to node1:7000: {cause}"


# -- dropped ----------------------------------------------------------------------------------


def is_silent(attempt: Attempt) -> None:
    """Nothing comes of it any more."""
    assert attempt.next_timer is None
    attempt.handle_timer(attempt.loop.now() + 2 * PATIENCE)
    attempt.loop.run_once(attempt.loop.now())
    assert not attempt.results


def test_cancelled_while_it_connects(loop: Loop) -> None:
    with black_hole() as silent, listening() as port:
        attempt = begin(loop, at(silent, port))
        attempt.expire()
        attempt.cancel()
        is_silent(attempt)


def test_cancelled_while_a_name_is_looked_up(loop: Loop) -> None:
    with closing(Slow()) as slow:
        attempt = Attempt(loop, "node1", 7000, slow)
        attempt.start(PATIENCE)
        assert slow.asked.wait(PATIENCE)
        attempt.cancel()
        is_silent(attempt)
    is_silent(attempt)


def test_cancelled_twice(loop: Loop) -> None:
    attempt = Attempt(loop, "node1", 7000, asks_nobody)
    attempt.cancel()
    attempt.cancel()
    is_silent(attempt)


def test_cancelled_when_it_is_over(loop: Loop) -> None:
    with refusing() as port:
        attempt = Attempt(loop, LOOPBACK, port)
        attempt.start(PATIENCE)
        attempt.fails()
        attempt.cancel()
        assert len(attempt.results) == 1


def test_abandoned_lookups_leave_nothing(loop: Loop) -> None:
    """Only the threads are left, and they end when the system's resolver lets them."""
    before = set(os.listdir("/proc/self/fd"))
    with closing(Slow()) as slow:
        for _ in range(20):
            attempt = Attempt(loop, "node1", 7000, slow)
            attempt.start(PATIENCE)
            attempt.cancel()
        # One end each; the other is the answer of a thread that has none yet.
        assert len(set(os.listdir("/proc/self/fd")) - before) <= 20
    for thread in threading.enumerate():
        if thread.name == RESOLVER_THREAD:
            thread.join(PATIENCE)
    assert set(os.listdir("/proc/self/fd")) == before
