"""What the tests of the runtime share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from joinproto.runtime.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    """An event loop."""
    with closing(Loop()) as loop:
        yield loop
