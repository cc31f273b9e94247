"""Whole conversations, step by step, as both ends see them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from making import messages as say
from making.wire import JOIN_KIND, JOIN_MAGIC, KEY, ZERO, frame

PORT = 7000


class World:
    """One controller, the hosts that dial it, and everything that is said.

    Args:
        open_admission: Hello, Accept and Reject are tagged with zeros, and Accept carries the salt.
    """

    def __init__(self, *, open_admission: bool, salt: bytes = KEY) -> None:
        self.open = open_admission
        self.salt = salt
        self.connections: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.members: dict[int, tuple[str, Sequence[int], Sequence[int]]] = {}

    @property
    def join_key(self) -> bytes:
        """The key before a host is in."""
        return ZERO if self.open else self.salt

    # -- what is said -------------------------------------------------------------------------

    def dial(
        self,
        host: str,
        devices: Sequence[int] = (0,),
        *,
        wire: int = 2,
        agent: str | None = "finished",
        controller: str | None = "ended",
        greet: bool = True,
        **fields: Any,
    ) -> int:
        """A host dials and says Hello; the number of its connection.

        Args:
            agent: how the agent's end comes out; None where it is no agent.
            controller: how the controller's end comes out; None where it is no controller.
            greet: whether there is a Hello at all.
        """
        self.connections.append({"wire": wire, "agent": agent, "controller": controller})
        connection = len(self.connections) - 1
        self.members[connection] = (host, devices, ())
        if greet:
            gpus = [f"cuda:{device}" for device in devices]
            said = say.hello(wire, host=host, devices=devices, gpus=gpus, **fields)
            self.say(connection, "agent", said, self.join_key, first=True)
        return connection

    def accept(self, connection: int, ranks: Sequence[int], wait: int = 60) -> None:
        """The host is in."""
        host, devices, _ = self.members[connection]
        self.members[connection] = (host, devices, ranks)
        salt = self.salt.hex() if self.open else None
        self.say(connection, "controller", say.accept(ranks, salt, wait), self.join_key)

    def reject(self, connection: int, reason: str) -> None:
        """The host is turned away."""
        self.say(connection, "controller", say.reject(reason), self.join_key)

    def form(self, *connections: int, relay: bool = False) -> None:
        """The world is complete, and its members are told."""
        size = sum(len(ranks) for _, _, ranks in self.members.values())
        workers = sum(bool(ranks) for _, _, ranks in self.members.values())
        for connection in connections:
            said = say.formed(
                self._envelope(connection, size, workers),
                self._relay_spec(connection, size) if relay else None,
            )
            self.say(connection, "controller", said, self.salt)

    def exited(self, connection: int, rank: int, code: int = 0) -> None:
        """A rank has ended."""
        self.say(connection, "agent", say.exited(rank, code), self.salt)

    def abort(self, *connections: int, reason: str) -> None:
        """The run is given up."""
        for connection in connections:
            self.say(connection, "controller", say.abort(reason), self.salt)

    def close(self, connection: int, by: str) -> None:
        """One end closes."""
        self.steps.append({"connection": connection, "from": by, "close": True, "result": "valid"})

    def say(
        self, connection: int, by: str, said: say.Said, key: bytes, *, first: bool = False
    ) -> None:
        """A message, rightly framed."""
        wire: int = self.connections[connection]["wire"]
        data = JOIN_MAGIC * first + frame(said[0], wire=wire, key=key)
        self._step(connection, by, data, key=key.hex(), value=said[1], result="valid")

    def odd(
        self,
        connection: int,
        by: str,
        payload: bytes,
        *,
        stage: str,
        key: bytes | None = None,
        wire: int | None = None,
        kind: int = JOIN_KIND,
        first: bool = False,
    ) -> None:
        """A frame that should not be there."""
        wire = wire or self.connections[connection]["wire"]
        data = frame(payload, wire=wire, key=key or self.salt, kind=kind)
        self.raw(connection, by, JOIN_MAGIC * first + data, stage=stage)

    def raw(self, connection: int, by: str, data: bytes, *, stage: str) -> None:
        """Bytes that should not be there."""
        self._step(connection, by, data, result="invalid", stage=stage)

    def _step(self, connection: int, by: str, data: bytes, **more: Any) -> None:
        self.steps.append({"connection": connection, "from": by, "input": data.hex(), **more})

    # -- what it amounts to -------------------------------------------------------------------

    def given(self) -> dict[str, Any]:
        """The conversation as it stands in a case."""
        return {
            "admission": "open" if self.open else "pre-shared",
            "salt": self.salt,
            "connections": self.connections,
            "steps": self.steps,
        }

    @property
    def stage(self) -> str | None:
        """That of the first thing that is refused."""
        return next((step["stage"] for step in self.steps if "stage" in step), None)

    def _envelope(self, connection: int, size: int, workers: int) -> str:
        host, devices, ranks = self.members[connection]
        return _hex(
            {
                "controller": {"host": "127.0.0.1", "port": PORT},
                "world_size": size,
                "num_workers": workers,
                "worker": {
                    "host": host,
                    "ranks": list(ranks),
                    "local_devices": list(devices),
                    "nccl_socket_ifname": "",
                    "path": "",
                },
                "salt": self.salt.hex(),
            }
        )

    def _relay_spec(self, connection: int, size: int) -> str:
        host, _, ranks = self.members[connection]
        return _hex(
            {
                "host": host,
                "controller_host": "127.0.0.1",
                "controller_port": PORT,
                "ranks": list(ranks),
                "salt_hex": self.salt.hex(),
                "world_size": size,
                "data_channel": True,
                "frame_ceiling_bytes": 2**30,
            }
        )


def _hex(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":")).encode().hex()
