"""The primary watch: asks the Sentinels again and again while their primary is used.

A primary that a partition has cut off from its replicas goes on replying after one of them was promoted, and does not
know it. What it acknowledges then is lost, so a client leaves it as soon as the Sentinels name another one.
"""

import asyncio
import contextlib
import math
import time
from typing import Any

import structlog

from reprieve.stores.redis.error_mapping import DRIVER_ERRORS
from reprieve.stores.redis.sentinels import Sentinels, choose
from reprieve.stores.redis.topology import Topology

ASK_SECONDS = 0.5
"""Pause after the Sentinels were asked, until they are asked again."""

MAX_AGE_SECONDS = 1.0
"""How long a client relies on what the Sentinels have said: no call is sent after that before they were asked."""

MAX_UNUSED_SECONDS = 11.0
"""How long Sentinels are asked after the last call: longer than a reply may take."""

log = structlog.get_logger("reprieve")


class PrimaryWatch:
    """Asks the Sentinels while a client is used, and disconnects it from a primary that was deposed."""

    def __init__(self, client: Any, topology: Topology) -> None:  # noqa: ANN401 - a client of Sentinels
        """Take the client; the primary is noted in the topology, for all connections of the process."""
        self._pool = client.connection_pool
        self._sentinels: Sentinels = self._pool.sentinel_manager
        self._topology = topology
        self._asked_at = self._used_at = -math.inf
        self._asking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def ensure_asked(self) -> None:
        """Return when the Sentinels have been asked within the last second, and the client uses the right server."""
        self._used_at = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        if not self._is_fresh():
            async with self._asking:
                if not self._is_fresh():
                    await self._ask()

    def _is_fresh(self) -> bool:
        return self._sentinels.primary is not None and time.monotonic() < self._asked_at + MAX_AGE_SECONDS

    async def _watch(self) -> None:
        while time.monotonic() < self._used_at + MAX_UNUSED_SECONDS:
            async with self._asking:
                await self._ask()
            await asyncio.sleep(ASK_SECONDS)

    async def _ask(self) -> None:
        began = time.monotonic()
        replies = await self._sentinels.ask(self._topology.address.service)
        primary = choose(replies, self._topology.primary, len(self._sentinels.sentinels))
        self._asked_at, self._topology.primary = began, primary
        if primary is None or primary.address == self._sentinels.primary:
            return
        is_first, self._sentinels.primary = self._sentinels.primary is None, primary.address
        if not is_first:
            log.warning("another server is the primary", primary=f"{primary.host}:{primary.port}")
            # Calls that wait for a reply of the old one fail, and are repeated on the new one.
            self._pool.master_address = primary.address
            with contextlib.suppress(*DRIVER_ERRORS):
                await self._pool.disconnect(inuse_connections=True)

    async def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for sentinel in self._sentinels.sentinels:
            await sentinel.aclose()
