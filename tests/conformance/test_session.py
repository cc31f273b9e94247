from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from joinproto.conformance.capabilities import of_ourselves, split
from joinproto.conformance.case import Case, load
from joinproto.conformance.session import (
    PORTS,
    CannotStart,
    Settings,
    free_port,
    make_keys,
    play_for_real,
    spec_of,
    spec_variable,
)
from joinproto.conformance.verdicts import Verdict
from joinproto.keys import OPEN, Salt
from tests.support.conformance import StillWorld, case_of


def settings(role: str, command: str = "", **values: Any) -> Settings:
    return Settings(role=role, command=split(command), scale=0.1, **values)


def ours(role: str) -> Settings:
    command = of_ourselves(role).command.replace("{python}", shlex.quote(sys.executable))
    return settings(role, command)


def python(code: str) -> str:
    return shlex.join([sys.executable, "-I", "-S", "-c", code])


@pytest.mark.parametrize("role", ["agent", "controller"])
@pytest.mark.parametrize("admission", ["open", "pre-shared"])
def test_our_own_programs_are_sane(role: str, admission: str) -> None:
    sanity = load(role)[0]
    played = play_for_real(ours(role), sanity, wire=4, admission=admission)
    assert played.outcome.verdict is Verdict.PASS, played.outcome
    assert played.happenings
    assert played.seconds > 0


def test_an_agent_is_told_its_spec_and_its_case(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = f"import os; open({str(told)!r}, 'w').write(repr(dict(os.environ)))"
    case = case_of({"await": [{"exit": [0]}]}, setup={"env": {"A": "b"}, "spec": {"libtorch": "x"}})
    played = play_for_real(settings("agent", python(code)), case, wire=4, admission="pre-shared")
    assert played.outcome.verdict is Verdict.PASS
    env = eval(told.read_text())  # what the target wrote a moment ago
    spec = json.loads(bytes.fromhex(env["FLODL_INTERNAL_AGENT_JSON"]))
    assert (spec["host"], spec["libtorch"], len(spec["salt_hex"])) == ("target", "x", 32)
    assert env["A"] == "b"
    values = json.loads(env["JOINPROTO_CASE"])
    assert values["port"] == spec["controller_port"]
    assert values["admission"] == "pre-shared"
    assert env["FLODL_NET_TIMEOUT_SCALE"] == "0.1"


def test_the_salt_is_in_a_file_for_the_user_alone(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = (
        "import os, sys; s = os.stat(sys.argv[1]);"
        f" open({str(told)!r}, 'w').write(oct(s.st_mode) + ' ' + open(sys.argv[1]).read())"
    )
    command = f"{python(code)} [{{salt_file}}]"
    case = case_of({"await": [{"exit": [0]}]}, role="controller")
    play_for_real(settings("controller", command), case, wire=4, admission="pre-shared")
    mode, salt = told.read_text().split()
    assert stat.S_IMODE(int(mode, 8)) == 0o600
    assert Salt.from_hex(salt) == make_keys(settings("controller"), case, "pre-shared").session


def test_what_a_target_leaves_behind_is_ended(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = (
        "import os, signal\nif os.fork(): os._exit(0)\nos.setsid()\n"
        f"open({str(told)!r}, 'w').write(str(os.getpid()))\nos.write(1, b'up\\n')\nsignal.pause()"
    )
    case = case_of({"all": [{"exit": [0]}, {"line": "up"}]})
    played = play_for_real(settings("agent", python(code)), case, wire=4, admission="open")
    assert played.outcome.verdict is Verdict.PASS, played.outcome
    assert not Path(f"/proc/{told.read_text()}/fd/0").exists()


def test_stderr_goes_with_the_result() -> None:
    code = "import os, time; os.write(2, b'it broke'); os._exit(3)"
    case = case_of({"await": [{"exit": [3]}]}, {"quiet": 0.05})
    played = play_for_real(settings("agent", python(code)), case, wire=4, admission="open")
    assert played.stderr == "it broke"


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(CannotStart, match="cannot run /nowhere: No such file"):
        play_for_real(settings("agent", "/nowhere"), one(), wire=4, admission="open")


def one() -> Case:
    return case_of({"listen": True})


def test_secrets_are_those_of_one_case_and_one_seed() -> None:
    first = make_keys(settings("agent", seed=1), one(), "open")
    assert first == make_keys(settings("agent", seed=1), one(), "open")
    assert first.join == OPEN
    assert first.open
    others = [
        make_keys(settings("agent", seed=2), one(), "open"),
        make_keys(settings("agent", seed=1), case_of({"listen": True}, id="agent/a/b"), "open"),
    ]
    assert first.session not in [other.session for other in others]
    shared = make_keys(settings("agent", seed=1), one(), "pre-shared")
    assert shared.join == shared.session
    assert shared.session != shared.other


def test_the_salt_of_a_controller_that_is_up_already() -> None:
    salt = Salt(b"s" * 16)
    assert make_keys(settings("controller", salt=salt), one(), "pre-shared").join == salt


def test_a_field_that_a_case_sets_to_null_is_left_out() -> None:
    spec = spec_of(case_of(setup={"spec": {"local_devices": None, "run_id": "r"}}), StillWorld())
    assert spec == {
        "host": "target",
        "controller_host": "127.0.0.1",
        "controller_port": 29400,
        "run_id": "r",
    }


def spec_in(**setup: object) -> str:
    return spec_variable(case_of(setup=setup), StillWorld())


def test_a_spec_travels_as_hex_of_json() -> None:
    assert json.loads(bytes.fromhex(spec_in()))["controller_port"] == 29400


def test_a_case_may_write_the_spec_itself() -> None:
    text = spec_in(spec_text='["$host","$address",$port,"ü\udcff"]')
    assert bytes.fromhex(text) == b'["target","127.0.0.1",29400,"\xc3\xbc\xff"]'
    assert spec_in(spec_text="k", spec_hex=" $HEX,$hex0\n") == " 6B,6b0\n"


def test_tools_that_hang_come_first_in_the_path(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = f"import shutil; open({str(told)!r}, 'w').write(shutil.which('nvidia-smi') or '')"
    case = case_of({"await": [{"exit": [0]}]}, setup={"hanging": ["nvidia-smi"]}, memory=False)
    play_for_real(settings("agent", python(code)), case, wire=4, admission="open")
    assert told.read_text().endswith("/tools/nvidia-smi")


def test_a_helper_may_not_be_there(tmp_path: Path) -> None:
    code = "import os, sys; sys.exit(os.path.exists(os.environ['JOINPROTO_HELPER']))"
    case = case_of({"await": [{"exit": [0]}]}, setup={"helper": False})
    played = play_for_real(settings("agent", python(code)), case, wire=4, admission="open")
    assert played.outcome.verdict is Verdict.PASS


def test_output_may_stay_unread() -> None:
    code = "print('line')"
    steps = ({"await": [{"exit": [0]}]}, {"await": [{"line": "line"}], "within": 0.2})
    played = play_for_real(
        settings("agent", python(code)), case_of(*steps), wire=4, admission="open"
    )
    assert played.outcome.verdict is Verdict.PASS
    unread = case_of(*steps, setup={"read_output": False})
    played = play_for_real(settings("agent", python(code)), unread, wire=4, admission="open")
    assert played.outcome.verdict is Verdict.FAIL


def test_a_bystander_comes_up_beside_the_target() -> None:
    steps = ({"await": [{"up": "bystander"}]}, {"signal": "KILL"}, {"gone": 0.0})
    case = case_of(*steps, setup={"bystander": True})
    code = "import signal; signal.pause()"
    played = play_for_real(settings("agent", python(code)), case, wire=4, admission="open")
    assert played.outcome.verdict is Verdict.PASS


def test_ports_are_none_of_those_that_the_system_gives_out() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert free_port() in PORTS
    assert max(PORTS) < first


def test_no_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joinproto.conformance.session.PORTS", [1] * 200)
    if os.geteuid() == 0:
        monkeypatch.setattr("socket.socket.bind", _in_use)
    with pytest.raises(CannotStart, match="no port"):
        free_port()


def _in_use(*_: object) -> None:
    raise OSError(98, "Address already in use")
