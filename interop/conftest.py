"""What the tests against published peers share."""

from __future__ import annotations

import os

import pytest

from interop.peers import WIRES, binary


def _need(version: str) -> str:
    """`version`, unless its peer is not built: then the test is skipped, or fails if asked to."""
    try:
        binary(version)
    except FileNotFoundError as missing:
        if os.environ.get("JOINPROTO_REQUIRE_PEERS") == "1":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    return version


@pytest.fixture(scope="session", params=list(WIRES))
def version(request: pytest.FixtureRequest) -> str:
    """Each published version in turn."""
    return _need(request.param)


@pytest.fixture(scope="session")
def both_versions() -> list[str]:
    """All published versions, oldest first."""
    return [_need(version) for version in WIRES]
