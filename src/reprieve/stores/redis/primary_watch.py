"""The primary watch: asks the Sentinels again and again while their primary is used.

A primary that a partition has cut off from its replicas goes on replying after one of them was promoted, and does not
know it. What it acknowledges then is lost, so a client leaves it as soon as the Sentinels name another one.
"""

import asyncio
import math
import time

import structlog
from redis import exceptions as redis_errors

from reprieve.stores.redis.node import Node, node_name
from reprieve.stores.redis.sentinels import Primary, ask, choose
from reprieve.stores.redis.topology import Topology

ASK_SECONDS = 0.5
"""Pause after the Sentinels were asked, until they are asked again."""

MAX_AGE_SECONDS = 1.0
"""How long a client relies on what the Sentinels have said: no call is sent after that before they were asked."""

MAX_UNUSED_SECONDS = 11.0
"""How long Sentinels are asked after the last call: longer than a reply may take."""

log = structlog.get_logger("reprieve")


class PrimaryWatch:
    """The primary that Sentinels name, and its connections, which are closed as soon as it is deposed."""

    def __init__(self, topology: Topology) -> None:
        """Take the address; the primary is noted in the topology, for all connections of the process."""
        address = topology.address
        self._sentinels = [Node(address.client_for_sentinel(*host), node_name(*host)) for host in address.hosts]
        self._topology = topology
        self._node: Node | None = None
        self._asked_at = self._used_at = -math.inf
        self._asking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def node_of(self, key: str) -> Node:  # noqa: ARG002 - the primary has them all
        """Return the primary, as the Sentinels have named it within the last second."""
        await self.ensure_primary()
        if self._node is None:
            message = f"no Sentinel names the primary of {self._topology.address.service!r}"
            raise redis_errors.ConnectionError(message)
        return self._node

    async def primaries(self) -> list[Node]:
        """Return the primary."""
        return [await self.node_of("")]

    def mark_stale(self) -> None:
        """Ask the Sentinels again before the next call."""
        self._asked_at = -math.inf

    async def ensure_primary(self) -> None:
        """Return when the Sentinels have been asked within the last second, and the right server is used."""
        self._used_at = time.monotonic()
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._watch())
        if not self._is_fresh():
            async with self._asking:
                if not self._is_fresh():
                    await self._ask()

    def _is_fresh(self) -> bool:
        return self._node is not None and time.monotonic() < self._asked_at + MAX_AGE_SECONDS

    async def _watch(self) -> None:
        while time.monotonic() < self._used_at + MAX_UNUSED_SECONDS:
            async with self._asking:
                await self._ask()
            await asyncio.sleep(ASK_SECONDS)

    async def _ask(self) -> None:
        began = time.monotonic()
        replies = await ask(self._sentinels, self._topology.address.service)
        primary = choose(replies, self._topology.primary, len(self._sentinels))
        self._asked_at, self._topology.primary = began, primary
        if primary is not None and not self._is_closed:
            await self._use(primary)

    async def _use(self, primary: Primary) -> None:
        name, deposed = node_name(*primary.address), self._node
        if deposed is not None and deposed.name == name:
            return
        self._node = Node(self._topology.address.client_for(*primary.address), name)
        if deposed is not None:
            log.warning("another server is the primary", primary=name)
            # Calls that wait for a reply of the old one fail, and are repeated on the new one.
            await deposed.close()

    async def close(self) -> None:
        """Ask no more, and close all connections; calls under way fail."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        nodes = [*self._sentinels, *([] if self._node is None else [self._node])]
        await asyncio.gather(*(node.close() for node in nodes))
