from __future__ import annotations

import pytest

from tests.support.python import run_python

OUTCOMES = ("passed", "failed", "errors")


def run(pytester: pytest.Pytester, source: str) -> tuple[pytest.RunResult, dict[str, int]]:
    """A run of pytest that knows the plugin by its module and not by its entry point."""
    pytester.makepyfile(source)
    result = pytester.runpytest_inprocess("-p", "no:joinproto", "-p", "joinproto.testing.plugin")
    return result, {name: n for name, n in result.parseoutcomes().items() if name in OUTCOMES}


def test_it_imports_next_to_nothing() -> None:
    costly = run_python(
        "import joinproto.testing.plugin\n"
        "names = ('hypothesis', 'construct', 'transitions', 'nacl', 'joinproto.connection')\n"
        "print(json.dumps([name for name in names if name in sys.modules]))"
    )
    assert costly == []


def test_the_fixtures_of_a_test_share_a_clock(pytester: pytest.Pytester) -> None:
    _, outcomes = run(
        pytester,
        """
        from joinproto import AgentConnection, Admission, ControllerConnection, Hello, Plan, Salt

        def test_it(joinproto_clock, joinproto_link, joinproto_processes):
            salt = Salt(bytes(16))
            agent = AgentConnection(Plan(hello=Hello(host="a", local_devices=(0,)), wires=(2,)))
            agent.start(joinproto_clock.now)
            controller = ControllerConnection(Admission(salt=salt, open=True))
            link = joinproto_link(agent, controller)
            link.settle()
            processes = joinproto_processes(agent)
            link.right.do(controller.admit((0,), 1, joinproto_clock.now))
            link.right.do(controller.form("00", None, joinproto_clock.now))
            link.settle()
            assert processes.do(link.left.effects)
            assert processes.clock is link.left.clock is joinproto_clock
            assert processes[0].running
        """,
    )
    assert outcomes == {"passed": 1}


def test_fakes_over_a_socket_and_in_memory(pytester: pytest.Pytester) -> None:
    _, outcomes = run(
        pytester,
        """
        from joinproto import Hello
        from joinproto.testing import Expect, Link, Say

        def test_socket(joinproto_fake_controller, joinproto_fake_agent):
            fake = joinproto_fake_controller(codes={0: 7}).listen()
            joinproto_fake_agent(codes={0: 7}).dial(fake.host, fake.port)

        def test_memory(joinproto_fake_controller, joinproto_fake_agent, joinproto_clock):
            fake = joinproto_fake_controller([Expect(Hello, host="b")])
            agent = joinproto_fake_agent(script=[Say(Hello(host="b", local_devices=()))])
            Link(agent.end(joinproto_clock), fake.end(joinproto_clock)).settle()
        """,
    )
    assert outcomes == {"passed": 2}


def test_a_script_that_nobody_asked_after_fails_the_test(pytester: pytest.Pytester) -> None:
    result, outcomes = run(
        pytester,
        """
        from joinproto.testing import WaitEnd

        def test_it(joinproto_fake_controller):
            joinproto_fake_controller([WaitEnd()], timeout=0.01).listen()
        """,
    )
    assert outcomes == {"passed": 1, "errors": 1}
    result.stdout.fnmatch_lines(["*step 1 of 1, WaitEnd(), did not come true*"])


def test_a_script_that_was_closed_is_nobodys_business(pytester: pytest.Pytester) -> None:
    _, outcomes = run(
        pytester,
        """
        from joinproto.testing import WaitEnd

        def test_it(joinproto_fake_controller):
            joinproto_fake_controller([WaitEnd()], timeout=600).listen().close()
        """,
    )
    assert outcomes == {"passed": 1}


def test_a_test_that_failed_waits_for_nothing_and_leaves_nothing(
    pytester: pytest.Pytester,
) -> None:
    _, outcomes = run(
        pytester,
        """
        import threading
        from joinproto.testing import WaitEnd

        def test_it(joinproto_fake_controller, joinproto_fake_agent):
            fake = joinproto_fake_controller([WaitEnd()], timeout=600).listen()
            joinproto_fake_agent(timeout=600).dial(fake.host, fake.port)
            assert not fake

        def test_what_it_left():
            assert "joinproto-fake" not in [thread.name for thread in threading.enumerate()]
        """,
    )
    assert outcomes == {"passed": 1, "failed": 1}
