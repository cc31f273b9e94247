from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from joinproto.errors import ConfigError, HostError
from joinproto.runtime.gpus import Gpu, Inventory, State, choose, label
from tests.support.nvml import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    UNKNOWN,
    FakeGpu,
    build_fake_nvml,
    fake_gpus,
    write_nvidia_smi,
)
from tests.support.python import is_gone, run_python, wait_until

RESOLVE = """
import os, time
from joinproto.errors import JoinprotoError
from joinproto.runtime import gpus, probe_child

requested, timeout, library = args
probe_child.NVML_LIBRARY = library
start = time.monotonic()
try:
    answer = gpus.resolve(requested, os.environ, timeout=timeout)
except JoinprotoError as error:
    answer = [type(error).__name__, str(error), error.exit_code]
print(json.dumps([*answer, time.monotonic() - start]))
"""
"""Detection reads the loader's path and forks: it needs a process without the test's threads."""

ABSENT = "libnot-there.so.1"
ROWS = "echo '0, 9.0, 81559, NVIDIA H100'; echo '1, 12.1, [N/A], NVIDIA GB10'"
LABELS = ["NVIDIA H100 (79GB, sm_90)", "NVIDIA GB10 (sm_121)"]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake_nvml(tmp_path_factory.mktemp("nvml"))


def resolve(
    env: dict[bytes, bytes],
    requested: list[int] | None = None,
    *,
    timeout: float = 30,
    smi: str = "",
    tmp_path: Path | None = None,
    nvml: bool = True,
    mask: str | None = None,
) -> Any:
    """What `resolve` gives, or the error's class, text and exit code."""
    env = {b"PATH": b"/nowhere", **env}
    if tmp_path is not None:
        env[b"PATH"] = bytes(write_nvidia_smi(tmp_path, smi).parent)
    if mask is not None:
        env[b"CUDA_VISIBLE_DEVICES"] = mask.encode()
    elif b"CUDA_VISIBLE_DEVICES" in os.environb:
        pytest.skip("CUDA_VISIBLE_DEVICES is set")
    name = "libnvidia-ml.so.1" if nvml else ABSENT
    *answer, seconds = run_python(RESOLVE, requested, timeout, name, env=env)
    assert seconds < timeout + 5
    return answer


# -- NVML -------------------------------------------------------------------------------------


def test_every_gpu_that_nvml_finds(library: Path) -> None:
    gb10 = FakeGpu(name=b"NVIDIA GB10", capability="12.1", fail=(("Memory", NOT_SUPPORTED),))
    env = fake_gpus(library, [FakeGpu(name=b"NVIDIA H100"), gb10])
    assert resolve(env) == [[0, 1], LABELS, []]


def test_gpus_that_were_asked_for(library: Path) -> None:
    env = fake_gpus(library, [FakeGpu(name=b"NVIDIA H100"), FakeGpu(name=b"NVIDIA A100")])
    ids, labels, warnings = resolve(env, [1, 7, 0], mask="0")
    assert ids == [1, 7, 0]
    assert labels == ["NVIDIA A100 (79GB, sm_90)", "cuda:7", "NVIDIA H100 (79GB, sm_90)"]
    assert warnings == ["GPU 7 was requested and not found (found: 0, 1)"]


@pytest.mark.parametrize("code", [GPU_IS_LOST, UNKNOWN])
def test_one_bad_gpu_of_eight(library: Path, code: int) -> None:
    bad = FakeGpu(fail=(("Handle", code),))
    gpus = [bad if index == 3 else FakeGpu() for index in range(8)]
    ids, labels, warnings = resolve(fake_gpus(library, gpus))
    assert ids == [0, 1, 2, 4, 5, 6, 7]
    assert len(labels) == 7
    assert warnings == [
        f"GPU 3 is left out: {'GPU is lost' if code == GPU_IS_LOST else 'Unknown Error'}"
    ]


def test_a_memory_error_is_not_taken_for_unified_memory(library: Path) -> None:
    gpus = [FakeGpu(), FakeGpu(fail=(("Memory", UNKNOWN),))]
    assert resolve(fake_gpus(library, gpus))[::2] == [[0], ["GPU 1 is left out: Unknown Error"]]


def test_an_nvml_that_crashes_is_survived(library: Path, tmp_path: Path) -> None:
    env = fake_gpus(library, [FakeGpu()] * 8, crash="Handle:3")
    assert resolve(env) == [
        "HostError",
        "cannot tell which GPUs there are (NVML: crashed (Segmentation fault); nvidia-smi: not in "
        "PATH); name the devices to do without (--devices or local_devices)",
        1,
    ]
    assert resolve(env, [0, 3]) == [
        [0, 3],
        ["cuda:0", "cuda:3"],
        ["the GPUs could not be examined (NVML: crashed (Segmentation fault); nvidia-smi: not in "
         "PATH)"],
    ]  # fmt: skip
    assert resolve(env, smi=ROWS, tmp_path=tmp_path) == [
        [0, 1],
        LABELS,
        ["NVML: crashed (Segmentation fault); asked nvidia-smi instead"],
    ]


def test_an_nvml_that_hangs_is_given_up(library: Path, tmp_path: Path) -> None:
    """The driver hangs, so nvidia-smi is not asked."""
    env = fake_gpus(library, [FakeGpu()] * 8, hang="Handle:3")
    asked = tmp_path / "asked"
    kind, text, code = resolve(env, timeout=0.3, smi=f"echo x > {asked}", tmp_path=tmp_path)
    assert (kind, code) == ("HostError", 1)
    assert "(NVML: did not answer within 0.3 s)" in text
    assert resolve(env, [0], timeout=0.3) == [
        [0],
        ["cuda:0"],
        ["the GPUs could not be examined (NVML: did not answer within 0.3 s)"],
    ]
    assert not asked.exists()


def test_nothing_but_an_answer_is_seen_of_nvml(library: Path) -> None:
    """Also from a process with threads, and twice."""
    code = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
import os
from joinproto.runtime import gpus
detection = gpus.Detection(os.environ, timeout=30)
first = detection.result()
detection.close()
print(json.dumps([[gpu.label for gpu in first.gpus], detection.result() is first]))
"""
    env = fake_gpus(library, [FakeGpu(name=b"NVIDIA H100")])
    assert run_python(code, env=env) == [[LABELS[0]], True]


def test_a_detection_that_is_not_wanted_any_more(library: Path) -> None:
    code = """
import os
from joinproto.runtime import gpus
detection = gpus.Detection(os.environ, timeout=30)
detection.close()
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print(json.dumps(detection.result().trouble))
"""
    assert run_python(code, env=fake_gpus(library, hang="Init")) == "given up"


# -- nvidia-smi -------------------------------------------------------------------------------


def test_nvidia_smi_where_there_is_no_nvml(tmp_path: Path) -> None:
    assert resolve({}, smi=ROWS, tmp_path=tmp_path, nvml=False) == [[0, 1], LABELS, []]


def test_nvidia_smi_is_asked_as_published_agents_do(tmp_path: Path) -> None:
    script = (
        'test "$*" = "--query-gpu=index,compute_cap,memory.total,name '
        f'--format=csv,noheader,nounits" && {{ {ROWS}; }}'
    )
    assert resolve({}, smi=script, tmp_path=tmp_path, nvml=False)[0] == [0, 1]


def test_nvidia_smi_where_nvml_refuses(library: Path, tmp_path: Path) -> None:
    env = fake_gpus(library, fail=[f"Init={DRIVER_NOT_LOADED}"])
    assert resolve(env, smi=ROWS, tmp_path=tmp_path) == [
        [0, 1],
        LABELS,
        ["NVML: Driver Not Loaded; asked nvidia-smi instead"],
    ]


@pytest.mark.parametrize("script", ["exec /bin/sleep 3600", "trap '' TERM; /bin/sleep 3600"])
def test_an_nvidia_smi_that_hangs(tmp_path: Path, script: str) -> None:
    kind, text, code = resolve({}, timeout=0.3, smi=script, tmp_path=tmp_path, nvml=False)
    assert (kind, code) == ("HostError", 1)
    assert "nvidia-smi: did not answer within 0.3 s" in text


def test_an_nvidia_smi_whose_grandchild_holds_the_pipe(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"/bin/sleep 3600 & echo $! > {pid}; {ROWS}"
    assert resolve({}, smi=script, tmp_path=tmp_path, nvml=False) == [[0, 1], LABELS, []]
    wait_until(lambda: is_gone(int(pid.read_text())), "the grandchild ended")


@pytest.mark.slow
def test_an_nvidia_smi_that_takes_four_seconds(tmp_path: Path) -> None:
    start = time.monotonic()
    script = f"/bin/sleep 4; {ROWS}"
    answer = resolve({}, timeout=10, smi=script, tmp_path=tmp_path, nvml=False)
    assert answer == [[0, 1], LABELS, []]
    assert time.monotonic() - start >= 4


def test_an_nvidia_smi_that_cannot_run(tmp_path: Path) -> None:
    program = write_nvidia_smi(tmp_path, "")
    program.write_bytes(b"\x7fELF garbage")
    *_, text, code = resolve({b"PATH": bytes(tmp_path)}, nvml=False)
    assert code == 2
    assert "nvidia-smi: [Errno 8] Exec format error" in text
    program.chmod(0o644)
    assert "nvidia-smi: not in PATH" in resolve({b"PATH": bytes(tmp_path)}, nvml=False)[1]


# -- neither ----------------------------------------------------------------------------------


def test_a_host_without_nvidia() -> None:
    assert resolve({}, [0, 1], nvml=False) == [[0, 1], ["cuda:0", "cuda:1"], []]
    assert resolve({}, nvml=False) == [
        "ConfigError",
        "no GPU found (NVML: libnot-there.so.1 is not installed; nvidia-smi: not in PATH); "
        "name the devices to do without (--devices or local_devices)",
        2,
    ]


def test_no_process_can_be_started(tmp_path: Path) -> None:
    refuse = """
import os
def refuse(*args, **kwargs): raise OSError(11, "Resource temporarily unavailable")
os.fork = os.posix_spawn = refuse
"""
    env = {b"PATH": bytes(write_nvidia_smi(tmp_path, ROWS).parent)}
    trouble = "no process to ask in: Resource temporarily unavailable"
    *answer, _ = run_python(refuse + RESOLVE, [0], 30, ABSENT, env=env)
    assert answer == [
        [0],
        ["cuda:0"],
        [f"the GPUs could not be examined (NVML: {trouble}; nvidia-smi: {trouble})"],
    ]


def test_what_importing_it_costs() -> None:
    code = "import joinproto.runtime.gpus\nprint(json.dumps(sorted(sys.modules)))"
    heavy = {"asyncio", "csv", "ctypes", "pynvml", "selectors", "shutil", "socket", "subprocess"}
    assert heavy.isdisjoint(run_python(code))


# -- choosing ---------------------------------------------------------------------------------

HINT = "name the devices to do without (--devices or local_devices)"
FOUR = Inventory(gpus=tuple(Gpu(index, "X") for index in range(4)))


def test_every_gpu() -> None:
    assert choose(None, FOUR, {}) == ((0, 1, 2, 3), ("X",) * 4, ())


def test_the_mask_and_what_it_says() -> None:
    ids, labels, warnings = choose(None, FOUR, {"CUDA_VISIBLE_DEVICES": "2,0,99,1"})
    assert (ids, labels) == ((2, 0), ("X", "X"))
    assert len(warnings) == 1
    assert "no one GPU is '99'" in warnings[0]


@pytest.mark.parametrize("mask", ["", "-1"])
def test_a_mask_that_hides_all(mask: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose(None, FOUR, {"CUDA_VISIBLE_DEVICES": mask})
    assert caught.value.fault == "no-devices"
    assert str(caught.value) == (
        f"no GPU left: CUDA_VISIBLE_DEVICES={mask!r} hides all 4 of them; {HINT}"
    )


def test_a_mask_that_leaves_none_by_mistake() -> None:
    with pytest.raises(ConfigError, match="MIG slice"):
        choose(None, FOUR, {"CUDA_VISIBLE_DEVICES": "MIG-1b2c"})


def test_uuids_from_nvidia_smi(tmp_path: Path) -> None:
    script = f"""
case "$1" in
--query-gpu=index,uuid) echo '0, GPU-1111'; echo '1, GPU-8932f937' ;;
*) {ROWS} ;;
esac
"""
    answer = resolve({}, smi=script, tmp_path=tmp_path, nvml=False, mask="GPU-8932")
    assert answer == [[1], LABELS[1:], []]


def test_numbers_that_the_wire_cannot_carry() -> None:
    many = Inventory(gpus=tuple(Gpu(index, "X") for index in (0, 255, 256, 300)))
    devices = choose(None, many, {})
    assert devices.ids == (0, 255)
    assert devices.warnings == ("2 GPUs with numbers above 255 are left out",)
    with pytest.raises(ConfigError, match="above 255"):
        choose(None, Inventory(gpus=many.gpus[2:]), {})


def test_no_gpu_at_all() -> None:
    with pytest.raises(ConfigError) as caught:
        choose(None, Inventory(), {"CUDA_VISIBLE_DEVICES": "0"})
    assert caught.value.fault == "no-devices"
    assert str(caught.value) == f"no GPU found; {HINT}"


def test_all_gpus_lost() -> None:
    lost = tuple((index, "GPU is lost") for index in range(8))
    with pytest.raises(ConfigError) as caught:
        choose(None, Inventory(lost=lost), {})
    assert str(caught.value) == (
        "no usable GPU; GPU 0 is left out: GPU is lost; GPU 1 is left out: GPU is lost; "
        f"GPU 2 is left out: GPU is lost; and 5 more; {HINT}"
    )


def test_no_answer() -> None:
    for state, error in ((State.ABSENT, ConfigError), (State.FAILED, ConfigError),
                         (State.BROKEN, HostError)):  # fmt: skip
        with pytest.raises(error, match="why"):
            choose(None, Inventory(state=state, trouble="why"), {})


def test_doubts_about_what_was_requested() -> None:
    inventory = Inventory(
        gpus=(Gpu(0, "X"),), lost=((1, "GPU is lost"), (2, "gone")), warnings=("told",)
    )
    assert choose([0, 1, 1], inventory, {}).warnings == (
        "told",
        "GPU 1 was requested and cannot be used: GPU is lost",
    )
    assert choose([5], Inventory(), {}).warnings == (
        "GPU 5 was requested and not found (found: none)",
    )


def test_a_label() -> None:
    assert label(0, Inventory(gpus=(Gpu(0, "X", 2048, (9, 0)),))) == "X (2GB, sm_90)"
    assert label(1, Inventory()) == "cuda:1"
