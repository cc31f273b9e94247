from __future__ import annotations

import json
import socket

import pytest

from joinproto.grammar import JOIN_MAGIC, WIRES
from joinproto.keys import Salt
from joinproto.messages import Abort, Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.testing import (
    SESSION,
    AcceptAndClose,
    Admit,
    Dialed,
    Drip,
    Expect,
    ExpectBytes,
    FakeAgent,
    FakeClock,
    FakeController,
    Link,
    Received,
    Reset,
    Say,
    ScriptFailed,
    SendBytes,
    WaitEnd,
)

SALT = Salt(bytes(range(16)))
HELLO = Hello(host="a", local_devices=(0, 1))


def in_memory(controller: FakeController, agent: FakeAgent, clock: FakeClock) -> Link:
    link = Link(agent.end(clock), controller.end(clock))
    link.settle()
    return link


# -- in memory --------------------------------------------------------------------------------


def test_a_whole_world_in_memory(joinproto_clock: FakeClock) -> None:
    controller = FakeController.admitting(codes={1: 7})
    agent = FakeAgent.joining(host="a", devices=(3, 5), codes={1: 7})
    in_memory(controller, agent, joinproto_clock)
    agent.check()
    controller.check()
    assert controller.hello == agent.hello == Hello(host="a", local_devices=(3, 5))
    assert controller.exits == {0: 0, 1: 7}
    assert controller.ranks == agent.ranks == (0, 1)
    assert controller.messages == [
        Hello(host="a", local_devices=(3, 5)),
        RankExited(rank=0, code=0),
        RankExited(rank=1, code=7),
    ]
    assert [type(message) for message in agent.messages] == [Accept, WorldFormed]
    assert controller.received().startswith(JOIN_MAGIC)
    assert controller.received(0) == controller.received(-1)


def test_what_a_script_did_not_come_to_is_told(joinproto_clock: FakeClock) -> None:
    controller = FakeController([Expect(Hello), Expect(Abort)])
    agent = FakeAgent([Say(HELLO)])
    in_memory(controller, agent, joinproto_clock)
    agent.join()
    with pytest.raises(ScriptFailed, match="step 2 of 2, Expect\\(Abort\\(\\)\\)") as caught:
        controller.join()
    assert "nothing more came" in str(caught.value)


def artifacts(
    controller: FakeController, clock: FakeClock, salt: Salt | None = None
) -> WorldFormed:
    agent = FakeAgent.joining(host="a", devices=(3, 5), salt=salt)
    in_memory(controller, agent, clock)
    agent.check()
    formed = agent.messages[-1]
    assert isinstance(formed, WorldFormed)
    return formed


def test_artifacts_as_published_controllers_write_them(joinproto_clock: FakeClock) -> None:
    controller = FakeController.admitting(ranks=(4, 5), relay=True, salt=SALT)
    formed = artifacts(controller, joinproto_clock, SALT)
    envelope = json.loads(bytes.fromhex(formed.envelope_hex))
    assert envelope["worker"]["local_devices"] == [3, 5]
    assert envelope["worker"]["ranks"] == [4, 5]
    assert envelope["salt"] == SALT.hex()
    assert formed.relay_spec_hex is not None
    relay = json.loads(bytes.fromhex(formed.relay_spec_hex))
    assert (relay["host"], relay["salt_hex"]) == ("a", SALT.hex())
    assert relay["controller_port"] == envelope["controller"]["port"]


def test_artifacts_as_the_test_has_them(joinproto_clock: FakeClock) -> None:
    controller = FakeController.admitting(envelope="beef", relay="")
    formed = artifacts(controller, joinproto_clock)
    assert formed == WorldFormed(envelope_hex="beef", relay_spec_hex="")
    without = artifacts(FakeController.admitting(), joinproto_clock)
    assert without.relay_spec_hex is None


def test_a_session_salt_of_the_tests_own(joinproto_clock: FakeClock) -> None:
    controller = FakeController([Expect(Hello), Admit(), Expect(RankExited)], session=SALT)
    agent = FakeAgent(
        [Say(HELLO), Expect(Accept, salt_hex=SALT.hex()), Say(RankExited(rank=0, code=1))]
    )
    in_memory(controller, agent, joinproto_clock)
    agent.check()
    controller.check()
    assert SALT != SESSION


# -- over sockets -----------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("salt", [None, SALT])
def test_a_whole_world_over_a_socket(wire: int, salt: Salt | None) -> None:
    with FakeController.admitting(codes={1: -9}, salt=salt) as controller:
        agent = FakeAgent.joining(devices=(0, 1), codes={1: -9}, salt=salt, wire=wire)
        with agent.dial(controller.host, controller.port):
            agent.join()
            controller.join()
    assert controller.finished
    assert controller.exits == {0: 0, 1: -9}
    received = [entry for entry in controller.record if isinstance(entry, Received)]
    assert {entry.wire for entry in received} == {wire}


def test_an_agent_that_tries_several_wires_finds_its_way() -> None:
    with FakeController([Expect(Hello), Say(Reject(reason="x"))], wires=[2]) as controller:
        newest = FakeAgent([Say(HELLO), WaitEnd()], wire=4)
        with newest.dial(controller.host, controller.port):
            newest.join()
        with FakeAgent([Say(HELLO), Expect(Reject)], wire=2).dial(
            controller.host, controller.port
        ) as older:
            older.join()
    assert [entry for entry in controller.record if isinstance(entry, Dialed)] == [
        Dialed(connection=1),
        Dialed(connection=2),
    ]
    assert controller.messages == [HELLO]


@pytest.mark.parametrize("reset", [False, True])
def test_connections_that_are_closed_at_once(reset: bool) -> None:
    script = [
        AcceptAndClose(times=3, reset=reset),
        Expect(Hello),
        Say(Reject(reason="x")),
        WaitEnd(),
    ]
    with FakeController(script) as controller:
        agent = FakeAgent([WaitEnd(), WaitEnd(), WaitEnd(), Say(HELLO), Expect(Reject), Reset()])
        with agent.dial(controller.host, controller.port):
            agent.join()
    assert len([entry for entry in controller.record if isinstance(entry, Dialed)]) == 4


def test_bytes_of_any_kind() -> None:
    script = [ExpectBytes(b"GET / HTTP/1.1\r\n"), Drip(b"HTTP/1.1 404\r\n", chunk=3), WaitEnd()]
    with FakeController(script) as controller:
        agent = FakeAgent(
            [SendBytes(b"/ HTTP/1.1\r\n"), ExpectBytes(b"HTTP/1.1 404\r\n")], channel=b"GET "
        )
        with agent.dial(controller.host, controller.port):
            agent.join()
    assert controller.received() == b"GET / HTTP/1.1\r\n"


def test_a_controller_on_ipv6() -> None:
    with FakeController([Expect(Hello)]).listen("::1") as controller:
        agent = FakeAgent([Say(HELLO)])
        with agent.dial(controller.host, controller.port):
            controller.join()
        assert controller.address == f"[::1]:{controller.port}"


def test_an_address_to_dial() -> None:
    with FakeController([AcceptAndClose()]) as controller:
        assert controller.address == f"127.0.0.1:{controller.port}"
        with socket.create_connection((controller.host, controller.port)) as sock:
            assert sock.recv(1) == b""


# -- how a with statement ends ----------------------------------------------------------------


def test_it_waits_for_the_script() -> None:
    with (
        pytest.raises(ScriptFailed, match="nothing more came in 0.05 s"),
        FakeController([Expect(Hello)], timeout=0.05),
    ):
        pass


def test_it_does_not_wait_when_the_test_has_failed() -> None:
    with pytest.raises(ZeroDivisionError), FakeController([Expect(Hello)], timeout=600.0):
        print(1 // 0)


def test_it_does_not_wait_when_it_was_closed() -> None:
    with FakeController([Expect(Hello)], timeout=600.0) as controller:
        controller.close()
        controller.close()
    assert not controller.finished


def test_an_agent_without_a_controller() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    with (
        FakeAgent([Say(HELLO)]).dial("127.0.0.1", port) as agent,
        pytest.raises(ScriptFailed, match="cannot connect: Connection refused"),
    ):
        agent.join()
