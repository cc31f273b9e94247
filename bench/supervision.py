#!/usr/bin/env python3
"""Supervision and output of `joinproto agent`, beside the published agent in the same run.

Both run the same shell commands as ranks, under the same controller.  Worlds of the two take turns,
so that whatever else the machine does meets both alike; a figure is the median of its samples.
CPU, wake-ups and memory are those of the agent and of every helper process it has, without ranks.
Memory is PSS: what other processes map too (this program is one) counts by its share.

usage: python bench/supervision.py [--rows NAME,...] [--quick] [--json FILE]

Exit code: 0, or 1 when a goal is not reached.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import _supervising as supervising
from bench._common import PEER, compile_bytecode, machine
from bench._flood import write_lines
from bench._supervising import FULL, QUICK, Sizes
from bench._table import Figures, Goal, Row, tell
from bench._worlds import OURS, Contender, linked, published

PUBLISHED = f"flodl {PEER}"
LINKED = f"flodl {PEER} with libtorch"

MOST_LOST = Goal(0, relative=False)

FLOODS = {100: (Goal(3, least=True), Goal(0.4)), 10: (Goal(3, least=True), None), 10_000: (Goal(1.2, least=True), None)}
"""Length of the lines, and the goals for MB/s and for CPU."""


@dataclass
class Measurement:
    """What is measured in one go, by one name, and the rows that come of it."""

    name: str
    measure: Callable[[Contender, Sizes], Figures]
    rows: list[Row]


