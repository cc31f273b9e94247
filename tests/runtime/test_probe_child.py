from __future__ import annotations

from pathlib import Path

import pytest

from joinproto.runtime.probe_child import one_line
from tests.support.nvml import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NOT_SUPPORTED,
    UNKNOWN,
    FakeGpu,
    build_fake_nvml,
    fake_gpus,
)
from tests.support.python import run_python

REPORT = """
from joinproto.runtime import probe_child
probe_child.NVML_LIBRARY = args[0]
print(json.dumps(list(probe_child.nvml_report())))
"""
H100 = "85520809984\t9.0"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake_nvml(tmp_path_factory.mktemp("nvml"))


def report(
    library: Path, *gpus: FakeGpu, fail: tuple[str, ...] = (), name: str = "libnvidia-ml.so.1"
) -> list[str]:
    lines = run_python(REPORT, name, env=fake_gpus(library, gpus, fail=fail))
    assert isinstance(lines, list)
    return lines


def test_every_device_in_one_line(library: Path) -> None:
    b200 = FakeGpu(name=b"NVIDIA B200", memory=1, capability="10.0", uuid="GPU-8932f937")
    assert report(library, FakeGpu(), b200) == [
        f"gpu\t0\t{H100}\tGPU-00000000-0000-0000-0000-000000000000\tNVIDIA H100 80GB HBM3",
        "gpu\t1\t1\t10.0\tGPU-8932f937\tNVIDIA B200",
        "end",
    ]


def test_no_device(library: Path) -> None:
    assert report(library) == ["end"]


@pytest.mark.parametrize(
    ("step", "line"),
    [
        ("Memory", "gpu\t0\t-\t9.0\tGPU-1\tX"),
        ("Capability", "gpu\t0\t85520809984\t-\tGPU-1\tX"),
        ("Uuid", f"gpu\t0\t{H100}\t-\tX"),
        ("Name", "lost\t0\tNot Supported"),
        ("Handle", "lost\t0\tNot Supported"),
    ],
)
def test_not_supported(library: Path, step: str, line: str) -> None:
    gpu = FakeGpu(name=b"X", uuid="GPU-1", fail=((step, NOT_SUPPORTED),))
    assert report(library, gpu) == [line, "end"]


@pytest.mark.parametrize("step", ["Handle", "Name", "Memory", "Capability"])
@pytest.mark.parametrize(
    ("code", "reason"),
    [(GPU_IS_LOST, "GPU is lost"), (UNKNOWN, "Unknown Error"), (4711, "fake error 4711")],
)
def test_one_bad_device(library: Path, step: str, code: int, reason: str) -> None:
    lines = report(library, FakeGpu(), FakeGpu(fail=((step, code),)), FakeGpu())
    assert [line.split("\t")[:2] for line in lines[:3]] == [
        ["gpu", "0"],
        ["lost", "1"],
        ["gpu", "2"],
    ]
    assert lines[1] == f"lost\t1\t{reason}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"NVIDIA\nA\tB\x1b[31m", "NVIDIA?A?B?[31m"),
        (b"NVIDIA \xff", "-"),
        ("Grafik€".encode(), "Grafik€"),
        (b"", "-"),
        (b"  X ", "X"),
    ],
)
def test_names(library: Path, name: bytes, text: str) -> None:
    assert report(library, FakeGpu(name=name))[0].split("\t")[5] == text


def test_names_from_older_bindings_are_bytes(library: Path) -> None:
    code = """
import pynvml
pynvml.nvmlDeviceGetName = lambda handle: args[1].encode("latin-1")
"""
    for name, text in (("NVIDIA A100", "NVIDIA A100"), ("\xff", "-")):
        env = fake_gpus(library, [FakeGpu()])
        lines = run_python(code + REPORT, "libnvidia-ml.so.1", name, env=env)
        assert lines[0].split("\t")[5] == text


@pytest.mark.parametrize(
    ("fail", "line"),
    [
        (f"Init={DRIVER_NOT_LOADED}", "failed\tDriver Not Loaded"),
        (f"Count={UNKNOWN}", "failed\tUnknown Error"),
    ],
)
def test_nvml_that_refuses(library: Path, fail: str, line: str) -> None:
    assert report(library, FakeGpu(), fail=(fail,)) == [line]


def test_no_nvml(library: Path) -> None:
    assert report(library, name="libnot-there.so.1") == [
        "absent\tlibnot-there.so.1 is not installed"
    ]


def test_nvml_that_is_no_library(library: Path, tmp_path: Path) -> None:
    (tmp_path / "libempty.so.1").touch()
    (line,) = report(library, name=str(tmp_path / "libempty.so.1"))
    assert line.startswith("failed\t")
    assert "too short" in line


def test_no_bindings(library: Path) -> None:
    code = "sys.modules['pynvml'] = None\n" + REPORT
    env = fake_gpus(library, [FakeGpu()])
    assert run_python(code, "libnvidia-ml.so.1", env=env) == [
        "absent\tthe Python package nvidia-ml-py is not installed"
    ]


def test_a_nonsense_count_ends(library: Path) -> None:
    env = fake_gpus(library) | {b"FAKE_NVML_COUNT": b"-1"}
    lines = run_python(REPORT, "libnvidia-ml.so.1", env=env)
    assert len(lines) == 1025
    assert lines[-1] == "end"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("NVIDIA H100", "NVIDIA H100"),
        ("a\nb\rc\x00d\u2028e\u202ef\x85g", "a?b?c?d?e?f?g"),
        ("\udcff", "?"),
        ("x" * 1000, "x" * 200),
    ],
)
def test_one_line(text: str, line: str) -> None:
    assert one_line(text) == line
