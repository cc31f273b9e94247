"""Artifacts for ranks that want something else than published ones do, made of templates.

Under wire 4 the agents, published ones too, write the address at which they reached the controller
into both artifacts, so these must be what `joinproto.runtime.artifacts` can read; that is checked
here, where it can be told to the one who made them.  Under wire 2 they pass untouched.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from string import Template
from typing import Final

from joinproto.errors import ArtifactError, ConfigError
from joinproto.grammar import WIRES
from joinproto.keys import Salt
from joinproto.limits import MAX_PAYLOAD_BYTES
from joinproto.runtime.artifacts import localize_envelope, localize_relay
from joinproto.runtime.files import open_at_once
from joinproto.runtime.makers import HostPart, Made, World

REWRITTEN_WIRE: Final = 4
"""The wire version whose agents write into the artifacts."""

TEMPLATE_BYTES: Final = 1024 * 1024

ROOM_BYTES: Final = 1024
"""Of the payload of a WorldFormed, for what is not an artifact."""


_SAMPLE: Final = World(
    world_size=2,
    num_hosts=1,
    salt=Salt(bytes(16)),
    master=("192.0.2.1", 29500),
    hosts=(
        HostPart(
            host='a "host"',
            ranks=(0, 1),
            local_devices=(0, 1),
            gpus=("gpu", "gpu"),
            libtorch="2.0",
            group_rank=0,
            wire=REWRITTEN_WIRE,
            controller_host="192.0.2.2",
            controller_port=7077,
            peer_host="192.0.2.1",
        ),
    ),
)


def read_template(option: str, path: str) -> str:
    """The text of a template's file.

    Raises:
        ConfigError: it cannot be read, is not UTF-8, or is longer than 1 MiB.
    """
    where = f"{option} {path}"
    try:
        with open(path, "rb", opener=open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{where}: it is no plain file")
            raw = file.read(TEMPLATE_BYTES + 1)
        if len(raw) > TEMPLATE_BYTES:
            raise ConfigError(f"{where}: it is longer than {TEMPLATE_BYTES} bytes")
        return raw.decode()
    except ConfigError:
        raise
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: it is not UTF-8 at byte {error.start}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {getattr(error, 'strerror', None) or error}") from None


class TemplateMaker:
    """Fills in templates: `$name` or `${name}` is replaced, `$$` is a dollar sign.

    Names: host, ranks, local_devices, gpus (the three as arrays of JSON), ranks_csv,
    local_devices_csv, libtorch, world_size, num_hosts, group_rank, controller_host,
    controller_port, peer_host, master_addr, master_port, and salt_hex, which ranks under published
    agents need.  A template that is JSON once it is filled in is JSON: what is put into it is
    escaped as between quotation marks.  Any other is text, in which names with control characters
    are refused, since they come from the network.

    Args:
        text: of the envelope.
        relay_text: of the relay spec; None: hosts run no relay.
        wires: the versions that are spoken.

    Raises:
        ConfigError: a template is broken, names what is not there, or is nothing that agents of
            these versions can use.
    """

    def __init__(
        self, text: str, relay_text: str | None = None, *, wires: Iterable[int] = tuple(WIRES)
    ) -> None:
        strict = REWRITTEN_WIRE in wires
        self._envelope = _Filled("the envelope template", text, check_envelope, strict)
        self._relay = (
            None
            if relay_text is None
            else _Filled("the relay template", relay_text, check_relay, strict)
        )

    def make(self, world: World, done: Callable[[Made | str], None]) -> None:
        """Fill in for every host; calls `done` before it returns."""
        try:
            made = {part.host: self._for_host(world, part) for part in world.hosts}
        except ValueError as error:
            done(str(error))
        else:
            done(made)

    def cancel(self) -> None:
        """Nothing runs."""

    def _for_host(self, world: World, part: HostPart) -> tuple[str, str | None]:
        envelope = self._envelope.fill(world, part)
        relay = None if self._relay is None else self._relay.fill(world, part)
        check_size(part.host, envelope, relay)
        return envelope, relay


class _Filled:
    """One template, checked with a sample."""

    def __init__(self, name: str, text: str, check: Callable[[str], None], strict: bool) -> None:
        self._name = name
        self._template = Template(text)
        self._check_names(text)
        sample = self._template.substitute(_values(_SAMPLE, _SAMPLE.hosts[0], as_json=True))
        why = _not_json(sample)
        self._is_json = why is None
        if not strict:
            return
        if why is not None:
            raise ConfigError(
                f"{name} is not JSON once it is filled in ({why}); agents of wire "
                f"{REWRITTEN_WIRE} take nothing else"
            )
        try:
            check(_hex(sample))
        except ArtifactError as error:
            raise ConfigError(
                f"{name}: agents of wire {REWRITTEN_WIRE} could not use it: {error}"
            ) from None

    def fill(self, world: World, part: HostPart) -> str:
        """The template with a host's values in it, as hex.

        Raises:
            ValueError: it is no longer what it was with the sample.
        """
        values = _values(world, part, as_json=self._is_json)
        if world.master is None and {"master_addr", "master_port"} & self._names:
            raise ValueError(f"{self._name}: the address of rank 0's host is not known")
        if not self._is_json:
            self._check_text(values)
        text = self._template.substitute(values)
        if self._is_json and (why := _not_json(text)) is not None:
            raise ValueError(f"{self._name} is not JSON for host {part.host!r}: {why}")
        return _hex(text)

    def _check_names(self, text: str) -> None:
        known = _values(_SAMPLE, _SAMPLE.hosts[0], as_json=True)
        self._names: set[str] = set()
        for found in self._template.pattern.finditer(text):
            where = f"{self._name}, line {text.count(chr(10), 0, found.start()) + 1}"
            name = found["named"] or found["braced"]
            if found["invalid"] is not None:
                raise ConfigError(f"{where}: a $ that begins no name; write $$ for a dollar sign")
            if name is not None and name not in known:
                raise ConfigError(f"{where}: there is no {name}; there are {', '.join(known)}")
            if name is not None:
                self._names.add(name)

    def _check_text(self, values: Mapping[str, str]) -> None:
        for name in self._names & values.keys():
            if not values[name].isprintable():
                raise ValueError(
                    f"{self._name}: {name} {values[name]!r} holds control characters, "
                    "which text cannot carry safely"
                )


def _values(world: World, part: HostPart, *, as_json: bool) -> dict[str, str]:
    """What placeholders stand for."""
    master_addr, master_port = world.master or ("", 0)
    texts = {
        "host": part.host,
        "libtorch": part.libtorch,
        "controller_host": part.controller_host,
        "peer_host": part.peer_host,
        "master_addr": master_addr,
    }
    if as_json:
        texts = {name: json.dumps(text)[1:-1] for name, text in texts.items()}
    return texts | {
        "ranks": json.dumps(part.ranks),
        "local_devices": json.dumps(part.local_devices),
        "gpus": json.dumps(part.gpus),
        "ranks_csv": ",".join(map(str, part.ranks)),
        "local_devices_csv": ",".join(map(str, part.local_devices)),
        "world_size": str(world.world_size),
        "num_hosts": str(world.num_hosts),
        "group_rank": str(part.group_rank),
        "controller_port": str(part.controller_port),
        "master_port": str(master_port),
        "salt_hex": world.salt.hex(),
    }


def _not_json(text: str) -> str | None:
    """Why it is no JSON, without repeating any of it; None: it is."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"line {error.lineno} column {error.colno}: {error.msg}"
    except (ValueError, RecursionError):
        return "it cannot be read"
    return None


def _hex(text: str) -> str:
    return text.encode().hex()


def check_envelope(digits: str) -> None:
    """See that an agent of wire 4 can use an envelope.

    Raises:
        ArtifactError: it cannot.
    """
    localize_envelope(digits, host="h", port=1, data_path=None, gpu_ram_share=None)


def check_relay(digits: str) -> None:
    """See that an agent of wire 4 can use a relay spec.

    Raises:
        ArtifactError: it cannot.
    """
    localize_relay(digits, host="h", port=1)


def check_size(host: str, envelope: str, relay: str | None) -> None:
    """See that the artifacts of a host fit into its WorldFormed.

    Raises:
        ValueError: they do not.
    """
    if len(envelope) + len(relay or "") > MAX_PAYLOAD_BYTES - ROOM_BYTES:
        raise ValueError(f"the artifacts of host {host!r} do not fit into a frame of 16 MiB")
