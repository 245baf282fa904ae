"""The servers of a Cluster: which of them is the primary of which slots, as one event loop knows it."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from redis import exceptions as redis_errors
from redis.crc import key_slot

from reprieve.stores.redis.address import Address, HostPort
from reprieve.stores.redis.error_mapping import DRIVER_ERRORS
from reprieve.stores.redis.node import Node, node_name
from reprieve.stores.redis.tags import SLOTS

MAX_ASK_SECONDS = 2.0
"""How long a server may take to say which server has which slots, before the next one is asked."""

_STALE = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ClusterError,
    redis_errors.ReadOnlyError,
    OSError,
)
"""Errors after which another server may have the slot."""

_REDIRECTS = (redis_errors.AskError, redis_errors.TryAgainError)
"""The server does not have the slot, or it is being moved. `MovedError` is an `AskError`."""


class SlotRange(NamedTuple):
    """Slots that have the same servers."""

    first: int
    last: int
    primary: HostPort
    replicas: tuple[HostPort, ...]


class ClusterServers:
    """The primaries of a Cluster, by the slots that they have."""

    def __init__(self, address: Address) -> None:
        """Take the address, whose hosts are asked first; nothing is known yet."""
        self._address = address
        self._known: list[HostPort] = []
        """Servers of the latest map, replicas too, in the order in which they are asked for the next."""
        self._primaries: dict[HostPort, Node] = {}
        self._owners: list[Node | None] = [None] * SLOTS
        """The primary of each slot."""
        self._left: list[Node] = []
        """Servers that are no primaries any more, while they have calls under way."""
        self._stale_count = 1
        """How often the map was marked as stale."""
        self._refreshed_count = 0
        """The same when the latest map was asked for."""
        self._refreshing = asyncio.Lock()
        self._is_closed = False

    async def node_of(self, key: str) -> Node:
        """Return the primary of a key's slot, by the latest map."""
        if self._is_stale():
            await self._refresh()
        slot = key_slot(key.encode())
        node = self._owners[slot]
        if node is None:
            self.mark_stale()
            message = f"CLUSTERDOWN slot {slot} has no server"
            raise redis_errors.ClusterError(message)
        return node

    async def primaries(self) -> list[Node]:
        """Return every primary."""
        if self._is_stale():
            await self._refresh()
        return list(self._primaries.values())

    async def ensure_primary(self) -> None:
        """Return: every call asks for the primary of its key."""

    def mark_stale(self) -> None:
        """Ask for the map again before the next call."""
        self._stale_count += 1

    def _is_stale(self) -> bool:
        return self._stale_count != self._refreshed_count

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        self._is_closed = True
        self.mark_stale()
        nodes = [*self._primaries.values(), *self._left]
        await asyncio.gather(*(node.close() for node in nodes))

    def _note_error(self, error: Exception) -> None:
        """Mark the map as stale after an error that may come from it. Raises `ClusterError` for a redirect.

        No redirect is followed before the call is repeated. While a slot is moved, its old node redirects calls for a
        key that it does not have. A script declares its hash tag alone, so all scripts would be redirected, and start
        the partition anew on the node that is to receive it.
        """
        if isinstance(error, (*_STALE, *_REDIRECTS)):
            self.mark_stale()
        if isinstance(error, _REDIRECTS):
            message = f"redirected: {type(error).__name__} {error}"
            raise redis_errors.ClusterError(message) from error

    async def _refresh(self) -> None:
        """Ask for the map, once for all calls that wait for it."""
        async with self._refreshing:
            if not self._is_stale():
                return
            self._require_open()
            # A call that fails while the map is asked for marks this one as stale, too.
            count = self._stale_count
            ranges = await self._ask()
            self._require_open()
            self._refreshed_count = count
            await self._use(ranges)

    def _require_open(self) -> None:
        if self._is_closed:
            message = "the store is closed"
            raise redis_errors.ConnectionError(message)

    async def _ask(self) -> list[SlotRange]:
        """Return the map of the first server that knows one for all slots, else the largest.

        Each time another server is asked first: one that is cut off from the others still returns an old map.
        """
        failure: Exception = redis_errors.ConnectionError("no server of the Cluster is known")
        largest: list[SlotRange] = []
        for host in dict.fromkeys((*self._known, *self._address.hosts)):
            if host in self._known:
                self._known.remove(host)
                self._known.append(host)
            try:
                ranges = await self._ask_server(*host)
            except DRIVER_ERRORS as error:
                failure = error
                continue
            if _size(ranges) == SLOTS:
                return ranges
            largest = max(largest, ranges, key=_size)
        if not largest:
            raise failure
        return largest

    async def _ask_server(self, host: str, port: int) -> list[SlotRange]:
        client = self._address.client_for(host, port)
        node = Node(client, node_name(host, port), max_reply_seconds=MAX_ASK_SECONDS)
        try:
            return parse_slots(await node.execute("CLUSTER", "SLOTS"), host)
        finally:
            await node.close()

    async def _use(self, ranges: Iterable[SlotRange]) -> None:
        """Use a map: keep the connections to primaries that it names, and leave the others."""
        owners: list[Node | None] = [None] * SLOTS
        primaries: dict[HostPort, Node] = {}
        servers: dict[HostPort, None] = {}
        for some in ranges:
            node = primaries.get(some.primary) or self._primaries.get(some.primary) or self._node(*some.primary)
            primaries[some.primary] = node
            owners[some.first : some.last + 1] = [node] * (some.last + 1 - some.first)
            servers |= dict.fromkeys((some.primary, *some.replicas))
        left = [node for host, node in self._primaries.items() if host not in primaries]
        self._left = [node for node in self._left if node.is_busy] + left
        self._primaries, self._owners = primaries, owners
        self._known = [*(host for host in self._known if host in servers), *(servers.keys() - set(self._known))]
        for node in left:
            await node.leave()

    def _node(self, host: str, port: int) -> Node:
        return Node(self._address.client_for(host, port), node_name(host, port), self._note_error)


def _size(ranges: Iterable[SlotRange]) -> int:
    return sum(some.last + 1 - some.first for some in ranges)


def parse_slots(reply: Sequence[Any], asked: str) -> list[SlotRange]:
    """Return what a server at the host `asked` replied to CLUSTER SLOTS."""
    return [
        SlotRange(
            first=int(first),
            last=int(last),
            primary=_host_port(primary, asked),
            replicas=tuple(_host_port(replica, asked) for replica in replicas),
        )
        for first, last, primary, *replicas in reply
    ]


def _host_port(node: Sequence[Any], asked: str) -> HostPort:
    """Return where a server says that it is; one that does not know its host is on the one that was asked."""
    host, port, *_ = node
    name = host.decode() if isinstance(host, bytes) else host
    return (asked if name in (None, "", "?") else name), int(port)
