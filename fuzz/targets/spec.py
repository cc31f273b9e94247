"""agent-spec: the text of an agent's variable.

A case is a byte and the rest: with an even byte the rest is JSON, which is put into hex first; with
an odd one it is the text itself.

Invariant: a spec that is taken says the same when it is written and read again, and its salt shows
neither in its repr nor in an error.

Exceptions allowed: `ConfigError`, whose fault is one of those that `AgentSpec.from_hex` lists: its
one way of refusing.
"""

from __future__ import annotations

from dataclasses import replace

from joinproto.errors import ConfigError
from joinproto.runtime.spec import AgentSpec

FAULTS = ("hex", "json", "no-devices", "salt", "signature")


def check(data: bytes) -> None:
    """Raises `AssertionError` where the invariant is broken."""
    is_text = data[:1] and data[0] % 2
    # As an environment variable comes: what is no UTF-8 is there as surrogates.
    text = data[1:].decode(errors="surrogateescape") if is_text else data[1:].hex()
    try:
        spec = AgentSpec.from_hex(text)
    except ConfigError as error:
        assert error.fault in FAULTS, error.fault
        assert "\n" not in str(error), "an error of more than one line"
        return
    again = AgentSpec.from_hex(spec.to_hex())
    assert again == spec, "it does not write to itself"
    if spec.salt is not None:
        assert again.salt == spec.salt
        assert repr(spec) == repr(replace(spec, salt=None)), "a salt shows"
