"""What a host runs: command lines and environments of its children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from joinproto import effects as fx
from joinproto.errors import ConfigError
from joinproto.grammar import WIRES
from joinproto.record import Record

if TYPE_CHECKING:
    from joinproto.runtime.torch import TorchSettings

NOTHING: Mapping[str, str] = MappingProxyType({})


def split_words(option: str, text: str) -> list[str]:
    """The words of a command that an option gives, as a shell would split them.

    Raises:
        ConfigError: quotation marks are not closed, or there are no words.
    """
    # Late: most agents are given their command word by word.
    import shlex

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}", fault="command") from None
    if not words:
        raise ConfigError(f"{option} is empty", fault="command")
    return words


class Job(Record):
    """What a host runs, and for which controller.

    Attributes:
        controller: host and port, as configured.
        command: what each rank runs.
        relay_command: what the relay runs; None: the same.
        environ: what children's environments are built on.
        extra: laid over it, for relay and ranks alike.
        directory: where children run; None: here.
        data_path: goes into the envelope (wire 4).
        gpu_ram_share: goes into the envelope (wire 4).
        torch: ranks also get the variables of torch.distributed; None: they do not.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"environ", "extra"})

    controller: tuple[str, int]
    command: Sequence[str]
    relay_command: Sequence[str] | None = None
    environ: Mapping[str, str] = NOTHING
    extra: Mapping[str, str] = NOTHING
    directory: str | None = None
    data_path: str | None = None
    gpu_ram_share: float | None = None
    torch: TorchSettings | None = None

    def argv(self, spawn: fx.Spawn) -> Sequence[str]:
        """The command line of this child."""
        is_relay = spawn.rank is None
        return self.relay_command if is_relay and self.relay_command else self.command

    def environment(self, spawn: fx.Spawn) -> dict[str, str]:
        """The whole environment of this child.

        Raises:
            ArtifactError: what it is to be handed cannot be read.
        """
        from joinproto.runtime import artifacts, environment

        host, port = self.controller
        artifact = spawn.artifact_hex
        localized = WIRES[spawn.wire].localized
        if spawn.local_rank is None or spawn.device is None:
            if localized:
                artifact = artifacts.localize_relay(artifact, host=host, port=port)
            return environment.relay_environment(self.environ, relay_hex=artifact, extra=self.extra)
        if localized:
            artifact = artifacts.localize_envelope(
                artifact,
                host=host,
                port=port,
                data_path=self.data_path,
                gpu_ram_share=self.gpu_ram_share,
            )
        return environment.rank_environment(
            self.environ,
            envelope_hex=artifact,
            local_rank=spawn.local_rank,
            device=spawn.device,
            wire=spawn.wire,
            extra={**self._torch(artifact, spawn.local_rank), **self.extra},
        )

    def _torch(self, envelope_hex: str, local_rank: int) -> dict[str, str]:
        if self.torch is None:
            return {}
        from joinproto.runtime.torch import torch_environment

        return torch_environment(envelope_hex, local_rank=local_rank, settings=self.torch)
