from __future__ import annotations

import pytest

from joinproto.runtime.inventory import Gpu, Inventory
from joinproto.runtime.mask import shown, visible_gpus

FOUR = Inventory(
    gpus=tuple(
        Gpu(index, "X", uuid=f"GPU-{uuid}-d72c")
        for index, uuid in enumerate(["8932f937", "8932f9aa", "77b0c2d1", "00000000"])
    )
)


def masked(mask: str | None, inventory: Inventory = FOUR) -> tuple[list[int], tuple[str, ...]]:
    gpus, remarks = visible_gpus(inventory, mask)
    return [gpu.index for gpu in gpus], remarks


def test_no_mask() -> None:
    assert masked(None) == ([0, 1, 2, 3], ())


@pytest.mark.parametrize(
    ("mask", "ids"),
    [
        ("1,0", [1, 0]),
        (" 1 , 0", [1, 0]),
        ("0,2,-1,1", [0, 2]),
        ("3,", [3]),
        ("03,00", [3, 0]),
        ("2,NoDevFiles,1", [2]),
        ("GPU-77b0", [2]),
        ("GPU-8932f937-d72c,GPU-0", [0, 3]),
        ("1,GPU-77b0", [1, 2]),
        ("", []),
        (" ", []),
        ("-1", []),
        ("NoDevFiles", []),
        (",0", []),
    ],
)
def test_a_mask(mask: str, ids: list[int]) -> None:
    assert masked(mask) == (ids, ())


@pytest.mark.parametrize(
    ("mask", "ids", "bad"),
    [
        ("0,99,1", [0], "99"),
        ("0,GPU-8932f9,1", [0], "GPU-8932f9"),
        ("0,GPU-ffff,1", [0], "GPU-ffff"),
        ("0,one", [0], "one"),
        ("0,\u0663", [0], "\u0663"),
        ("0,1x", [0], "1x"),
        ("0,+1", [0], "+1"),
        ("all", [], "all"),
    ],
)
def test_a_mask_ends_at_the_first_entry_that_names_no_gpu(
    mask: str, ids: list[int], bad: str
) -> None:
    remark = f"{shown(mask)}: no one GPU is {bad!r}; CUDA ignores it and what follows"
    assert masked(mask) == (ids, (remark,))


@pytest.mark.parametrize(
    ("mask", "ids"), [("MIG-1b2c", []), ("MIG-GPU-8932f937/1/0", []), ("2,MIG-1b2c,1", [2])]
)
def test_a_mig_slice_cannot_be_offered(mask: str, ids: list[int]) -> None:
    remark = f"{shown(mask)} names a MIG slice, and only whole GPUs can be offered"
    assert masked(mask) == (ids, (remark,))


@pytest.mark.parametrize("mask", ["1,1", "0,1,01", "1,GPU-8932f9aa"])
def test_a_gpu_named_twice(mask: str) -> None:
    assert masked(mask) == ([], (f"{shown(mask)} names GPU 1 twice, which CUDA takes as none",))


@pytest.mark.parametrize("mask", ["0,1,2", "GPU-8932f937,GPU-8932f9aa,GPU-77b0"])
def test_a_lost_gpu_keeps_the_others(mask: str) -> None:
    """A lost one's UUID is not known: any that nobody has may be its."""
    inventory = Inventory(gpus=FOUR.gpus[:1] + FOUR.gpus[2:], lost=((1, "GPU is lost"),))
    assert masked(mask, inventory) == ([0, 2], ())


def test_where_there_is_no_gpu_a_mask_says_nothing() -> None:
    assert masked("0", Inventory()) == ([], ())


def test_shown() -> None:
    assert shown("0,1\n") == "CUDA_VISIBLE_DEVICES='0,1\\n'"
    assert len(shown("x" * 5000)) < 120
