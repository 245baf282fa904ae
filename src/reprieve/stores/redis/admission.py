"""Admission: servers are checked before the first call, and again after a failure or a while."""

import contextlib
import time

from redis import exceptions as redis_errors

from reprieve.stores.redis.node import Node
from reprieve.stores.redis.server_checks import require_safe, server_of
from reprieve.stores.redis.servers import Servers
from reprieve.stores.redis.topology import Topology

_SETTINGS = ("appendfsync", "min-replicas-*")


class Admission:
    """Checks the servers that one event loop uses."""

    def __init__(self, servers: Servers, topology: Topology) -> None:
        """Take the servers, and what the process knows of them."""
        self._servers = servers
        self._topology = topology

    async def check_primaries(self) -> int:
        """Check every primary; return how many there are. Raises `UnsafeStore` for one that would lose jobs."""
        primaries = await self._servers.primaries()
        for node in primaries:
            await self.check_again(node)
        return len(primaries)

    async def check_again(self, node: Node) -> None:
        """Check a server, unless that was done a short while ago."""
        now = time.monotonic()
        if not self._topology.is_checked(node.name, now):
            await self._check(node)
            self._topology.note_checked(node.name, now)

    async def _check(self, node: Node) -> None:
        config: dict[str, str] = {}
        info = await node.execute("INFO")
        if info.get("loading"):
            # While a server reads its append-only file, INFO says that it has none.
            message = "LOADING the server still reads its data from disk"
            raise redis_errors.BusyLoadingError(message)
        # The user may lack the right to read settings; only strict durability needs it.
        with contextlib.suppress(redis_errors.ResponseError):
            for pattern in _SETTINGS[: 2 if self._topology.address.min_replicas else 1]:
                config |= await node.execute("CONFIG GET", pattern)
        server = server_of(info, config)
        if self._topology.is_admitted and server.role != "master":
            self._servers.mark_stale()
            message = "READONLY the server has become a replica"
            raise redis_errors.ReadOnlyError(message)
        require_safe(server, self._topology.address, self._topology.durability)
