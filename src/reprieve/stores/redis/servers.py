"""The servers of a store, as one event loop reaches them: one, the primary that Sentinels name, or a Cluster."""

from typing import Protocol

from reprieve.stores.redis.cluster import ClusterServers
from reprieve.stores.redis.node import Node, node_name
from reprieve.stores.redis.primary_watch import PrimaryWatch
from reprieve.stores.redis.topology import Topology


class Servers(Protocol):
    """Which server has a key. Calls go to that server alone: no redirect is followed."""

    async def node_of(self, key: str) -> Node:
        """Return the server that has a key, or a hash tag, by the latest that is known."""

    async def primaries(self) -> list[Node]:
        """Return every primary."""

    async def ensure_primary(self) -> None:
        """Return when it is known which server is the primary, as far as Sentinels say it."""

    def mark_stale(self) -> None:
        """Ask again which server is the primary of what before the next call."""

    async def close(self) -> None:
        """Close all connections; calls under way fail."""


class SingleServer:
    """One server."""

    def __init__(self, topology: Topology) -> None:
        """Take its address."""
        host, port = topology.address.hosts[0]
        self._node = Node(topology.address.client_for(host, port), node_name(host, port))

    async def node_of(self, key: str) -> Node:  # noqa: ARG002 - it has them all
        """Return the server."""
        return self._node

    async def primaries(self) -> list[Node]:
        """Return the server."""
        return [self._node]

    async def ensure_primary(self) -> None:
        """Return: the primary is known."""

    def mark_stale(self) -> None:
        """Do nothing: the primary is known."""

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        await self._node.close()


def servers_of(topology: Topology) -> Servers:
    """Return the servers of a store, for the running event loop; nothing is connected yet."""
    match topology.address.mode:
        case "single":
            return SingleServer(topology)
        case "sentinel":
            return PrimaryWatch(topology)
        case "cluster":
            return ClusterServers(topology.address)
