"""GPUs that are not there: a libnvidia-ml.so.1 built from `fake_nvml.c`, and nvidia-smi scripts.

pynvml finds the library by LD_LIBRARY_PATH, which the loader reads when a process starts.  So the
variables that `fake_gpus` gives are for a process to be started.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")

NOT_SUPPORTED, DRIVER_NOT_LOADED, GPU_IS_LOST, UNKNOWN = 3, 9, 15, 999
"""Codes of nvml.h."""


@dataclass(frozen=True, kw_only=True)
class FakeGpu:
    """One pretended device.  `fail` maps a step (see `fake_nvml.c`) to the code it returns."""

    name: bytes = b"NVIDIA H100 80GB HBM3"
    memory: int = 85_520_809_984
    capability: str = "9.0"
    uuid: str = ""
    fail: tuple[tuple[str, int], ...] = ()


def build_fake_nvml(directory: Path) -> Path:
    """Compile the library into `directory`; its path.  Skips the test where there is no cc."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to build the fake libnvidia-ml with")
    library = directory / "libnvidia-ml.so.1"
    subprocess.run(
        [
            *(compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"),
            *("-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(SOURCE)),
        ],
        check=True,
    )
    return library


def fake_gpus(
    library: Path,
    gpus: Iterable[FakeGpu] = (),
    *,
    fail: Iterable[str] = (),
    crash: str = "",
    hang: str = "",
) -> dict[bytes, bytes]:
    """The variables for a process that is to see `gpus`, and nothing of its own library path.

    Args:
        library: what `build_fake_nvml` gave.
        gpus: the devices, by index.
        fail: `STEP=CODE` or `STEP:INDEX=CODE`.
        crash: the `STEP` or `STEP:INDEX` at which the process is to crash.
        hang: likewise, at which it is to hang.
    """
    env = {b"LD_LIBRARY_PATH": bytes(library.parent)}
    words = list(fail)
    devices = list(gpus)
    for index, gpu in enumerate(devices):
        env[b"FAKE_NVML_NAME_%d" % index] = gpu.name
        env[b"FAKE_NVML_MEMORY_%d" % index] = b"%d" % gpu.memory
        env[b"FAKE_NVML_CC_%d" % index] = gpu.capability.encode()
        if gpu.uuid:
            env[b"FAKE_NVML_UUID_%d" % index] = gpu.uuid.encode()
        words += [f"{step}:{index}={code}" for step, code in gpu.fail]
    env[b"FAKE_NVML_COUNT"] = b"%d" % len(devices)
    env[b"FAKE_NVML_FAIL"] = " ".join(words).encode()
    env[b"FAKE_NVML_CRASH"] = crash.encode()
    env[b"FAKE_NVML_HANG"] = hang.encode()
    return env


def write_nvidia_smi(directory: Path, script: str) -> Path:
    """A program `nvidia-smi` in `directory` that is this shell script."""
    program = directory / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program
