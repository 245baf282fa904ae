"""Admission: servers are checked before the first call, and again after a failure or a while."""

import contextlib
import time
from typing import Any

from redis import exceptions as redis_errors

from reprieve.stores.redis.replica_ack import node_of
from reprieve.stores.redis.server_checks import require_safe, server_of
from reprieve.stores.redis.topology import Topology

_SETTINGS = ("appendfsync", "min-replicas-*")


class Admission:
    """Checks the servers that one client uses."""

    def __init__(self, client: Any, topology: Topology) -> None:  # noqa: ANN401 - a client of one of several kinds
        """Take the client, and what the process knows of its servers."""
        self._client = client
        self._topology = topology

    async def check_primaries(self) -> int:
        """Check every primary; return how many there are. Raises `UnsafeStore` for one that would lose jobs."""
        if self._topology.address.mode != "cluster":
            await self.check_again(self._topology.tag(0))
            return 1
        await self._client.initialize()
        primaries = self._client.get_primaries()
        for node in primaries:
            await self._check({"target_nodes": [node]})
            self._topology.note_checked(node.name, time.monotonic())
        return len(primaries)

    async def check_again(self, tag: str) -> None:
        """Check the server that has a hash tag, unless that was done a short while ago."""
        now, node = time.monotonic(), node_of(self._client, tag)
        if not self._topology.is_checked(node.name, now):
            await self._check(node.target)
            self._topology.note_checked(node_of(self._client, tag).name, now)

    async def _check(self, target: dict[str, Any]) -> None:
        config: dict[str, str] = {}
        info = await self._client.info(**target)
        if info.get("loading"):
            # While a server reads its append-only file, INFO says that it has none.
            message = "LOADING the server still reads its data from disk"
            raise redis_errors.BusyLoadingError(message)
        # The user may lack the right to read settings; only strict durability needs it.
        with contextlib.suppress(redis_errors.ResponseError):
            for pattern in _SETTINGS[: 2 if self._topology.address.min_replicas else 1]:
                config |= await self._client.config_get(pattern, **target)
        server = server_of(info, config)
        if self._topology.is_admitted and server.role != "master":
            message = "READONLY the server has become a replica"
            raise redis_errors.ReadOnlyError(message)
        require_safe(server, self._topology.address, self._topology.durability)
