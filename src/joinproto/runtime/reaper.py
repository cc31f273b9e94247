"""The agent's helper: parent of its ranks, and heir of whatever they leave behind.

A process of its own, single-threaded and small, that the agent starts before it dials.  It starts
the children (so the agent, which may have threads, never runs Python between fork and exec), tells
of their ends, and ends every descendant when it is told to, or when the agent is gone: the socket
between the two is closed by the kernel, whatever ended the agent.  Should it be ended itself, each
child dies by its parent-death signal, and the agent inherits and ends the rest.

It imports nothing that it does not need: its memory is part of an idle agent's.
"""

from __future__ import annotations

import array
import errno
import marshal
import os
import resource
import select
import signal
import socket
import time

from joinproto.runtime import descendants
from joinproto.runtime.cgroup import PREFIX, make_cgroup
from joinproto.runtime.descriptors import lift_limit

END_WAIT = 10.0
"""Seconds for ending what is left, when the agent is gone and nobody else would."""

MESSAGE_BYTES = 65536
SPAWN_FDS = 3
"""The request itself, in memory, and the writing ends for the child's two output streams."""

TERMINATING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Child:
    """A child that is not reaped.

    Args:
        pid: its process number.
        pidfd: ready when it has ended.
        sock: takes the request, and tells why that could not be met, or ends when it was.

    Attributes:
        slot: what the agent calls it; None: nobody has asked for it yet.
        failed: it could not become what it was to be.
    """

    def __init__(self, pid: int, pidfd: int, sock: socket.socket) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.sock = sock
        self.slot: int | None = None
        self.failed = False


class Reaper:
    """The helper's state.

    Args:
        agent: the socket to the agent.
    """

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._me = os.getpid()
        # However low the agent's soft limit is, there is room for a few descriptors for each child.
        self._limits = lift_limit()
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._slots: dict[int, int] = {}
        self._children: dict[int, _Child] = {}
        self._by_fd: dict[int, _Child] = {}
        self._blanks: list[_Child] = []
        self._epoll = select.epoll()
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Whoever signals a whole group or service means the agent, which tells what to do.  A
        # handler that does nothing, and not an ignored signal, which children would inherit.
        for number in (*TERMINATING, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, _nothing)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.cgroup = make_cgroup(f"{PREFIX}{self._me}")
        # Children are born into it; to move each of them there would take milliseconds.
        self.cgroup.enter()

    def run(self) -> None:
        """Serve until the agent is gone; then leave nothing behind."""
        self._epoll.register(self._agent.fileno(), select.EPOLLIN)
        self._epoll.register(self._wake, select.EPOLLIN)
        try:
            self._tell("ready", self.cgroup.path)
            while self._serve():
                continue
        except OSError:
            # The agent went away in the middle of a word; what follows is the same.
            pass
        finally:
            self._end(time.monotonic() + END_WAIT)
            self.cgroup.remove()

    # -- what the agent asks ------------------------------------------------------------------

    def _serve(self) -> bool:
        """Deal with what is ready; whether the agent is still there."""
        for fd, _ in self._epoll.poll():
            if fd == self._agent.fileno():
                if not self._obey():
                    return False
            elif fd == self._wake:
                os.read(self._wake, MESSAGE_BYTES)
                self._reap_orphans()
            elif fd in self._by_fd:
                child = self._by_fd[fd]
                if fd == child.pidfd:
                    self._ended(child)
                else:
                    self._heard(child)
        return True

    def _obey(self) -> bool:
        data, fds = _receive(self._agent)
        if not data:
            return False
        word, *rest = marshal.loads(data)
        if word == "spawn":
            self._spawn(rest[0], *fds)
        elif word == "prepare":
            self._prepare(*rest)
        elif word == "signal":
            self._signal(*rest)
        elif word == "sweep":
            self._tell("swept", self._end(time.monotonic() + rest[0]))
        return True

    def _tell(self, *message: str | int | bytes | list[int] | None) -> None:
        self._agent.sendall(marshal.dumps(message))

    def _signal(self, slot: int, number: int) -> None:
        pid = self._slots.get(slot)
        if pid is not None:
            try:
                # Its leader is not reaped, so the group is its own.
                os.killpg(pid, number)
            except ProcessLookupError:
                # Forked a moment ago, it does not lead one yet.
                os.kill(pid, number)
            except OSError:
                return

    # -- children -----------------------------------------------------------------------------

    def _spawn(self, slot: int, request: int, out: int, err: int) -> None:
        """Hand a request to a forked process, without waiting for it to be met."""
        fds = [request, out, err]
        try:
            child = self._hand_over(fds)
            child.slot = slot
            self._slots[slot] = child.pid
        except OSError as error:
            self._tell("failed", slot, error.errno, b"")
        finally:
            for fd in fds:
                os.close(fd)

    def _hand_over(self, fds: list[int]) -> _Child:
        """Hand a request to a process that waits for one, or else to one that is forked now.

        Raises:
            OSError: there is no room for one more, or for the request.
        """
        while True:
            is_new = not self._blanks
            if is_new:
                self._blanks.append(self._fork())
            child = self._blanks[0]
            try:
                # Whatever stands in the way but its death, it stays for the next request.
                socket.send_fds(child.sock, [b"become"], fds)
            except ConnectionError:
                self._heard(child)
                if is_new:
                    raise
                # Somebody killed it while it waited.
                continue
            return self._blanks.pop(0)

    def _prepare(self, count: int) -> None:
        """Fork processes ahead of what they are to become: when a world forms there is no time."""
        try:
            for _ in range(count):
                self._blanks.append(self._fork())
        except OSError:
            # Whatever stood in the way is told when a child is asked for, if it still does.
            return

    def _fork(self) -> _Child:
        """Fork a process that waits for a request.

        Raises:
            OSError: there is no room for one more, or it cannot be watched.
        """
        # Both ends are closed by exec, so their end tells that it was done.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
            if pid == 0:
                self._await_request(theirs)
            return self._watch(pid, ours)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()

    def _watch(self, pid: int, sock: socket.socket) -> _Child:
        fds = [sock.fileno()]
        try:
            fds.append(os.pidfd_open(pid))
            for fd in fds:
                self._epoll.register(fd, select.EPOLLIN)
        except OSError:
            # What is closed is not watched any more; the socket is the caller's to close.
            for fd in fds[1:]:
                os.close(fd)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        child = self._children[pid] = _Child(pid, fds[1], sock)
        self._by_fd.update(dict.fromkeys(fds, child))
        return child

    def _await_request(self, sock: socket.socket) -> None:
        """What the forked process does: turn into what it is asked to be; never returns."""
        what = b""
        try:
            os.setsid()
            _rename(descendants.WAITING)
            descendants.prctl(descendants.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._me:
                # The helper ended between the fork and the line above.
                os._exit(127)
            _, fds = _receive(sock)
            if not fds:
                os._exit(127)
            for fd, target in zip((self._null, *fds[1:]), (0, 1, 2), strict=True):
                os.dup2(fd, target)
            with open(fds[0], "rb") as file:
                # The offset is shared with whoever wrote it.
                file.seek(0)
                argv, environment, directory = marshal.load(file)
            if directory is not None:
                what = directory
                os.chdir(directory)
            what = b""
            if self._limits is not None:
                # Last: what was inherited from the helper may be beyond a limit of its own.
                resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)
            os.execvpe(argv[0], argv, environment)
        except OSError as error:
            sock.send(marshal.dumps((error.errno, what)))
        except ValueError:
            # The name of a variable is none.
            sock.send(marshal.dumps((errno.EINVAL, what)))
        finally:
            os._exit(127)

    def _heard(self, child: _Child) -> None:
        """Take note of whether a child has become what it is to be: it has ended, or said why."""
        try:
            failure = child.sock.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            # The event was meant for an earlier one, whose descriptor had the same number.
            return
        except ConnectionResetError:
            # It was killed before it had read its request.
            failure = b""
        self._forget(child.sock.detach())
        if child.slot is None:
            # Killed by somebody before it was needed.
            self._blanks.remove(child)
            child.failed = True
        elif failure:
            child.failed = True
            del self._slots[child.slot]
            self._tell("failed", child.slot, *marshal.loads(failure))
        else:
            self._tell("started", child.slot, child.pid)

    def _ended(self, child: _Child) -> None:
        """A child ended; epoll gives them in the order in which they did."""
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        # Else the event was meant for an earlier one, as above.
        if pid:
            self._reaped(pid, status)

    def _reap_orphans(self) -> None:
        # Children first: reaped as one among the orphans they would be told out of order.
        for fd, _ in self._epoll.poll(0):
            child = self._by_fd.get(fd)
            if child is not None and fd == child.pidfd:
                self._ended(child)
        descendants.reap(self._reaped)

    def _reaped(self, pid: int, status: int) -> None:
        """One was reaped that may be a child whose end was not noticed yet."""
        child = self._children.pop(pid, None)
        if child is None:
            return
        self._forget(child.pidfd)
        if child.sock.fileno() >= 0:
            self._heard(child)
        if child.slot is not None and not child.failed:
            del self._slots[child.slot]
            self._tell("exited", child.slot, os.waitstatus_to_exitcode(status))

    def _forget(self, fd: int) -> None:
        del self._by_fd[fd]
        self._epoll.unregister(fd)
        os.close(fd)

    def _end(self, until: float) -> list[int]:
        """End every descendant; returns the numbers of those that will not end."""
        if self.cgroup.leave():
            self.cgroup.kill()
        return descendants.sweep(until, self._reaped_quietly)

    def _reaped_quietly(self, pid: int, status: int) -> None:
        try:
            self._reaped(pid, status)
        except OSError:
            # Nobody is left to be told.
            return


def _rename(name: bytes) -> None:
    """Have this process go by another name: forked and no more, it looks like the helper."""
    fd = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    os.write(fd, name)
    os.close(fd)


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """A message, empty at the end of them, and the descriptors that came with it."""
    fds = array.array("i")
    space = socket.CMSG_LEN(SPAWN_FDS * fds.itemsize)
    # Left to themselves descriptors arrive inheritable, and every child would hold its pipes twice,
    # beyond its own reach.  (`socket.recv_fds` does not pass its flags on.)
    data, ancillary, _, _ = sock.recvmsg(MESSAGE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content)
    return data, fds.tolist()


def _nothing(number: int, frame: object) -> None:
    """What a signal does that is not for the helper."""


def main() -> None:
    """Serve the agent at the other end of descriptor 0."""
    agent = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    # What the agent inherited without close-on-exec is for it alone.
    kept = {agent.fileno()}
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2 and int(entry) not in kept:
            try:
                os.close(int(entry))
            except OSError:
                continue
    descendants.become_subreaper()
    Reaper(agent).run()
    # Everything is ended; taking the interpreter down would only keep the agent waiting.
    os._exit(0)
