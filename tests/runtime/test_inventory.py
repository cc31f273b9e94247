from __future__ import annotations

import pytest

from joinproto.runtime.inventory import (
    Gpu,
    Inventory,
    State,
    read_nvml,
    read_smi,
    read_smi_uuids,
)
from joinproto.runtime.probe import Outcome

H100 = Gpu(0, "NVIDIA H100", 81559, (9, 0))


def nvml(text: str, code: int | None = 0) -> Inventory:
    return read_nvml(Outcome(text.encode(), code))


def smi(output: bytes, code: int | None = 0) -> Inventory:
    return read_smi(Outcome(output, code))


# -- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "label"),
    [
        (H100, "NVIDIA H100 (79GB, sm_90)"),
        (Gpu(0, "NVIDIA B200", 183359, (10, 0)), "NVIDIA B200 (179GB, sm_100)"),
        (Gpu(0, "NVIDIA RTX 5090", 32607, (12, 0)), "NVIDIA RTX 5090 (31GB, sm_120)"),
        (Gpu(0, "NVIDIA GB10", None, (12, 1)), "NVIDIA GB10 (sm_121)"),
        (Gpu(0, "NVIDIA Old", 4096, None), "NVIDIA Old (4GB)"),
        (Gpu(0, "NVIDIA Bare"), "NVIDIA Bare"),
        (Gpu(0, "a\nb\x1b[0m", 1024, (9, 0)), "a?b?[0m (1GB, sm_90)"),
        (Gpu(0, "", 1024, (9, 0)), "unknown GPU (1GB, sm_90)"),
    ],
)
def test_label(gpu: Gpu, label: str) -> None:
    assert gpu.label == label


@pytest.mark.parametrize("mib", [0, 1, 1023, 1024, 81558, 81559, 81920, 143771])
@pytest.mark.parametrize("rest", [0, 1, 1024 * 1024 - 1])
def test_both_sources_give_the_same_label(mib: int, rest: int) -> None:
    size = mib * 1024 * 1024 + rest
    (one,) = nvml(f"gpu\t0\t{size}\t9.0\tGPU-1\tNVIDIA X\nend\n").gpus
    (other,) = smi(f"0, 9.0, {mib}, NVIDIA X\n".encode()).gpus
    assert one.label == other.label == f"NVIDIA X ({size // 2**30}GB, sm_90)"


# -- NVML -------------------------------------------------------------------------------------


def test_an_nvml_report() -> None:
    found = nvml(
        "gpu\t0\t85520809984\t9.0\tGPU-1\tNVIDIA H100\n"
        "gpu\t1\t-\t12.1\t-\tNVIDIA GB10\n"
        "lost\t2\tGPU is lost\n"
        "gpu\t3\t1073741824\t-\tGPU-3\t-\n"
        "end\n"
    )
    assert found == Inventory(
        gpus=(
            Gpu(0, "NVIDIA H100", 81559, (9, 0), "GPU-1"),
            Gpu(1, "NVIDIA GB10", None, (12, 1), None),
            Gpu(3, "unknown GPU", 1024, None, "GPU-3"),
        ),
        lost=((2, "GPU is lost"),),
    )
    assert found.find(3) is found.gpus[2]
    assert found.find(2) is None


@pytest.mark.parametrize(
    ("text", "state", "trouble"),
    [
        ("absent\tnot installed\n", State.ABSENT, "not installed"),
        ("failed\tDriver Not Loaded\n", State.FAILED, "Driver Not Loaded"),
        ("gpu\t0\t1\t9.0\t-\tX\n", State.BROKEN, "ended without an answer (exit code 0)"),
        ("", State.BROKEN, "ended without an answer (exit code 0)"),
    ],
)
def test_an_nvml_report_that_is_none(text: str, state: State, trouble: str) -> None:
    assert nvml(text) == Inventory(state=state, trouble=trouble)


@pytest.mark.parametrize("read", [read_nvml, read_smi])
@pytest.mark.parametrize(
    ("outcome", "trouble"),
    [
        (Outcome(b"", -11), "crashed (Segmentation fault)"),
        (Outcome(b"0, 9.0, 1, X\n", -9), "crashed (Killed)"),
        (Outcome(b"end\n", None, "did not answer within 10 s"), "did not answer within 10 s"),
    ],
)
def test_a_crash_or_a_hang_is_no_answer(read: object, outcome: Outcome, trouble: str) -> None:
    assert callable(read)
    assert read(outcome) == Inventory(state=State.BROKEN, trouble=trouble)


# -- nvidia-smi -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "gpu"),
    [
        (b"0, 9.0, 81559, NVIDIA H100", H100),
        (b"0,9.0,81559,NVIDIA H100", H100),
        (b" 0 , 9.0 , 81559 , NVIDIA H100 \r", H100),
        (b"0, 12.1, [N/A], NVIDIA GB10", Gpu(0, "NVIDIA GB10", None, (12, 1))),
        (b"0, 12.1, [Not Supported], NVIDIA GB10", Gpu(0, "NVIDIA GB10", None, (12, 1))),
        (b"0, [N/A], 4096, NVIDIA Old", Gpu(0, "NVIDIA Old", 4096, None)),
        (b"0, 9.0, 81559, NVIDIA, really", Gpu(0, "NVIDIA, really", 81559, (9, 0))),
        (b"0, 9.0, 81559, \xff\xfe", Gpu(0, "unknown GPU", 81559, (9, 0))),
        (b"0, 9.0, 81559,", Gpu(0, "unknown GPU", 81559, (9, 0))),
    ],
)
def test_a_row(row: bytes, gpu: Gpu) -> None:
    assert smi(row + b"\n") == Inventory(gpus=(gpu,))


@pytest.mark.parametrize(
    "row",
    [
        b"1, 9.0, [Unknown Error], NVIDIA H100",
        b"1, [GPU is lost], [GPU is lost], [GPU is lost]",
        b"1, 9.0, 79.6, NVIDIA H100",
        b"1, 9.0, " + b"9" * 5000 + b", NVIDIA H100",
        b"1, 9, 81559, NVIDIA H100",
        b"1, " + b"9" * 5000 + b".0, 81559, NVIDIA H100",
    ],
)
def test_a_row_with_an_error_in_it_loses_that_device_alone(row: bytes) -> None:
    found = smi(b"0, 9.0, 81559, NVIDIA H100\n" + row + b"\n2, 9.0, 81559, NVIDIA H100\n")
    assert [gpu.index for gpu in found.gpus] == [0, 2]
    assert found.lost == ((1, row.decode()[:200]),)


def test_rows_in_any_order_and_twice() -> None:
    found = smi(b"1, 9.0, 1024, B\n0, 9.0, 1024, A\n1, 9.0, 1024, C\n")
    assert [(gpu.index, gpu.name) for gpu in found.gpus] == [(0, "A"), (1, "B")]


def test_other_lines_are_told() -> None:
    found = smi(
        b"Unable to determine the device handle for GPU0000:07:00.0: Unknown Error\n"
        b"0, 9.0, 81559, NVIDIA H100\n",
        15,
    )
    assert found.gpus == (H100,)
    assert found.warnings == (
        "nvidia-smi: Unable to determine the device handle for GPU0000:07:00.0: Unknown Error",
        "nvidia-smi: ended with exit code 15; the list may not be whole",
    )


def test_no_devices_is_an_answer() -> None:
    assert smi(b"No devices were found\n", 6) == Inventory()


@pytest.mark.parametrize(
    ("output", "code", "trouble"),
    [
        (b"NVIDIA-SMI has failed because\nit could not\n", 9, "NVIDIA-SMI has failed because"),
        (b'Field "compute_cap" is not valid', 2, 'Field "compute_cap" is not valid'),
        (b"", 1, "exit code 1, no output"),
        (b"", 0, "exit code 0, no output"),
        (b"\x1b[31mno\x00", 1, "?[31mno?"),
        (b"\xff\xff", 1, "\ufffd\ufffd"),
    ],
)
def test_nvidia_smi_that_fails(output: bytes, code: int, trouble: str) -> None:
    assert smi(output, code) == Inventory(state=State.FAILED, trouble=trouble)


def test_uuids() -> None:
    output = b"0, GPU-8932f937\n1, GPU-\xff\nnoise\n2,\nx, GPU-3\n"
    assert read_smi_uuids(Outcome(output, 0)) == {0: "GPU-8932f937", 1: "GPU-\ufffd"}
