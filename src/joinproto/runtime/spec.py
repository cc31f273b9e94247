"""What a host needs to know to join: the agent's spec, as published launchers hand it over.

It travels as hex of JSON in one environment variable.  The published agent is the measure of what
is taken and what is refused (`specs/vectors/published/agentspec.json`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from joinproto.errors import ConfigError
from joinproto.keys import Salt
from joinproto.limits import SIGNATURE_BYTES
from joinproto.runtime.environment import (
    AGENT_VARIABLE,
    CLUSTER_VARIABLE,
    FULL_CLUSTER_VARIABLE,
    LOCAL_RANK_VARIABLE,
    RELAY_VARIABLE,
)
from joinproto.runtime.hexjson import (
    Field,
    array,
    decode_hex,
    nullable,
    number,
    read_record,
    string,
    whole,
    write_hex,
)

_FIELDS: Final = (
    Field("host", string),
    Field("controller_host", string),
    Field("controller_port", whole(2**16 - 1)),
    Field("salt_hex", nullable(string), None),
    Field("local_devices", nullable(array(whole(2**8 - 1))), None),
    Field("libtorch", string, ""),
    Field("dataset_sig_hex", nullable(string), None),
    # Since 0.8; 0.7 ignores them.
    Field("run_id", nullable(string), None),
    Field("data_path", nullable(string), None),
    Field("gpu_ram_share", nullable(number), None),
    Field("model_sig_hex", nullable(string), None),
)
"""In published order, which is also the order of the array form."""

_OTHER_ROLES: Final = (
    RELAY_VARIABLE,
    FULL_CLUSTER_VARIABLE,
    CLUSTER_VARIABLE,
    LOCAL_RANK_VARIABLE,
)


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """The configuration of one host's agent.

    Attributes:
        host: the name to join under.  A blank one is taken here; the controller rejects it.
        controller_host: name or address to dial, an IPv6 address without brackets.
        controller_port: 0 to 65535.
        salt: the pre-shared salt; None means open admission.
        local_devices: device ids 0 to 255, one rank each; None means every GPU found.
        libtorch: the build label for the Hello.
        dataset_sig: 32 bytes; None sends zeros.
        run_id: (0.8) the run this host was prepared for.
        data_path: (0.8) where the data lies on this host.
        gpu_ram_share: (0.8) the share of the host's memory for an integrated GPU.
        model_sig: (0.8) 32 bytes.

    Raises:
        ConfigError: a value is out of range.  Faults: `no-devices` for an empty list of devices,
            `signature`, else `option`.
    """

    host: str
    controller_host: str
    controller_port: int
    salt: Salt | None = field(default=None, repr=False)
    local_devices: tuple[int, ...] | None = None
    libtorch: str = ""
    dataset_sig: bytes | None = None
    run_id: str | None = None
    data_path: str | None = None
    gpu_ram_share: float | None = None
    model_sig: bytes | None = None

    def __post_init__(self) -> None:
        given = self._plain()
        for known in _FIELDS:
            if known.name in given:
                try:
                    known.read(given[known.name])
                except ValueError as error:
                    raise ConfigError(f"{known.name} must be {error}") from None
        _refuse_no_devices(self.host, self.local_devices)
        _check_signature("dataset_sig", self.dataset_sig)
        _check_signature("model_sig", self.model_sig)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> AgentSpec:
        """The spec in `FLODL_INTERNAL_AGENT_JSON`; see `from_hex`.

        Raises:
            ConfigError: the variable is not set (fault `option`), or as `from_hex`.
        """
        digits = environ.get(AGENT_VARIABLE)
        if digits is None:
            raise ConfigError(f"{AGENT_VARIABLE} is not set")
        return cls.from_hex(digits)

    @classmethod
    def from_hex(cls, digits: str) -> AgentSpec:
        """The spec in the text of that variable; white space around it is trimmed.

        Everything that a published agent refuses before it dials is refused here, in its order.
        That includes an empty list of devices, which it notices only once it resolves them.

        Raises:
            ConfigError: fault `hex`, `json`, `no-devices`, `salt` or `signature`, the first step
                that failed; no value of the spec is repeated in the error.
        """
        try:
            raw = decode_hex(digits.strip())
        except ValueError as error:
            raise ConfigError(f"{AGENT_VARIABLE} is not hex: {error}", fault="hex") from None
        try:
            given = read_record(raw, _FIELDS)
        except ValueError as error:
            raise ConfigError(f"{AGENT_VARIABLE} holds no spec: {error}", fault="json") from None
        _refuse_no_devices(given["host"], given["local_devices"])
        return cls(
            salt=_salt(given.pop("salt_hex")),
            dataset_sig=_signature("dataset_sig_hex", given.pop("dataset_sig_hex")),
            model_sig=_signature("model_sig_hex", given.pop("model_sig_hex")),
            **given,
        )

    def to_hex(self) -> str:
        """The spec as text for that variable, salt included; fields that are None are left out."""
        given = self._plain()
        if self.salt is not None:
            given["salt_hex"] = self.salt.hex()
        if self.dataset_sig is not None:
            given["dataset_sig_hex"] = self.dataset_sig.hex()
        if self.model_sig is not None:
            given["model_sig_hex"] = self.model_sig.hex()
        return write_hex(given)

    def to_env(self) -> dict[str, str]:
        """The one variable, to be merged into the environment of an agent to be started."""
        return {AGENT_VARIABLE: self.to_hex()}

    def _plain(self) -> dict[str, object]:
        """The fields that JSON carries as they are, under their published names, None left out."""
        given: dict[str, object] = {
            known.name: getattr(self, known.name)
            for known in _FIELDS
            if not known.name.endswith("_hex") and getattr(self, known.name) is not None
        }
        if self.local_devices is not None:
            given["local_devices"] = list(self.local_devices)
        return given


def role_conflict(environ: Mapping[str, str]) -> None:
    """Refuses an environment that gives this process another role beside the agent's.

    Raises:
        ConfigError: a relay, launcher or rank variable is set, even to nothing (fault `role`).
    """
    for name in _OTHER_ROLES:
        if name in environ:
            raise ConfigError(
                f"{name} is set: it belongs to another role than the agent's; unset it",
                fault="role",
            )


def _refuse_no_devices(host: str, devices: tuple[int, ...] | None) -> None:
    if devices is not None and not devices:
        raise ConfigError(
            f"host {host!r} offers no devices: local_devices is empty; "
            "name at least one, or leave it out to offer every GPU found",
            fault="no-devices",
        )


def _salt(digits: str | None) -> Salt | None:
    if digits is None:
        return None
    try:
        return Salt.from_hex(digits)
    except ConfigError as error:
        raise ConfigError(f"{AGENT_VARIABLE}: salt_hex: {error}", fault="salt") from None


def _signature(name: str, digits: str | None) -> bytes | None:
    if digits is None:
        return None
    try:
        signature = decode_hex(digits.strip())
    except ValueError as error:
        raise ConfigError(
            f"{AGENT_VARIABLE}: {name} is not hex: {error}", fault="signature"
        ) from None
    _check_signature(f"{AGENT_VARIABLE}: {name}", signature)
    return signature


def _check_signature(name: str, signature: bytes | None) -> None:
    if signature is not None and len(signature) != SIGNATURE_BYTES:
        raise ConfigError(
            f"{name} must be {SIGNATURE_BYTES} bytes ({2 * SIGNATURE_BYTES} hex digits), "
            f"not {len(signature)}",
            fault="signature",
        )
