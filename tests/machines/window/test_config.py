"""config: what a window waits for."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from joinproto.errors import ConfigError
from joinproto.machines.window import (
    StartMode,
    WindowConfig,
    WindowState,
)

S = WindowState


class TestConfig:
    @pytest.mark.parametrize(
        ("config", "window", "cap"),
        [
            ({}, 300, 600),
            ({"join_timeout": 1000}, 1000, 1000),
            ({"join_timeout": 10, "max_join_timeout": 20}, 10, 20),
            ({"join_timeout": 0, "max_join_timeout": 0}, 1, 1),
            ({"scale": 0.1}, 30, 60),
            ({"join_timeout": 5, "scale": 0.5}, 3, 300),
        ],
    )
    def test_its_deadlines(self, config: dict[str, Any], window: float, cap: float) -> None:
        it = WindowConfig(**config)
        assert (it.window, it.cap) == (window, cap)

    @pytest.mark.parametrize(
        ("config", "complaint"),
        [
            ({"min_ranks": 0}, "min ranks is 0; a world has at least 1 rank"),
            ({"min_ranks": -3}, "min ranks is -3; a world has at least 1 rank"),
            (
                {"min_ranks": 4, "target_ranks": 3},
                "target ranks (3) is below min ranks (4)",
            ),
            (
                {"join_timeout": 30, "max_join_timeout": 20},
                "max join timeout (20 s) is below the join timeout (30 s)",
            ),
            ({"join_timeout": -1}, "join timeout is -1; it is a number of seconds"),
            ({"join_timeout": nan}, "join timeout is nan; it is a number of seconds"),
            ({"max_join_timeout": inf}, "max join timeout is inf; it is a number of seconds"),
        ],
    )
    def test_numbers_that_contradict_each_other(
        self, config: dict[str, Any], complaint: str
    ) -> None:
        with pytest.raises(ConfigError) as raised:
            WindowConfig(**config)
        assert str(raised.value) == complaint


def test_a_start_that_is_the_operators_alone_has_no_target() -> None:
    with pytest.raises(ConfigError, match="only the operator does; leave it out, or take hybrid"):
        WindowConfig(start_mode=StartMode.MANUAL, target_ranks=4)
    assert WindowConfig(start_mode=StartMode.HYBRID, target_ranks=4).target_ranks == 4


@pytest.mark.parametrize("name", ["rejected", "failures"])
def test_counts_are_not_negative(name: str) -> None:
    given: dict[str, Any] = {f"max_{name}": -1}
    with pytest.raises(ConfigError) as raised:
        WindowConfig(**given)
    assert str(raised.value) == f"max {name} is -1; it is 0 or more"
