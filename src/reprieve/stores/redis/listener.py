"""The listener: waits for the notifications of a partition, for all waiters of one event loop.

Notifications are entries of a short stream. A waiter names the last entry that it knows of, so it misses nothing that
was added in between, and any number of waiters may react to the same entry.
"""

import asyncio
from collections.abc import Collection
from typing import Any, TypeAlias

from reprieve.stores.redis.error_mapping import DRIVER_ERRORS, closed_as_broken
from reprieve.stores.redis.servers import Servers

StreamId: TypeAlias = tuple[int, int]
"""The id of a stream entry: milliseconds and a number."""

EVERY_QUEUE = "*"
"""The queue of a notification that is for all queues."""

MAX_NOTIFICATIONS = 64
"""Entries that the stream keeps: a reader that finds as many may have missed others. See calls.lua."""

_BLOCK_MS = 5_000
"""How long the server blocks a read when there is nothing new."""

_RETRY_SECONDS = 0.2
"""Pause before the next read after one has failed."""

_CANCEL_SECONDS = 0.05
"""How long a cancelled task has before it is cancelled again."""


def parse_stream_id(text: bytes | str) -> StreamId:
    """Return a stream id from its text."""
    milliseconds, _, number = (text.decode() if isinstance(text, bytes) else text).partition("-")
    return int(milliseconds), int(number or 0)


class Listener:
    """Reads the notifications of one partition, from the first wait until it is closed."""

    def __init__(self, servers: Servers, key: str) -> None:
        """Take the servers, to one of which the listener uses a connection, and the stream's key."""
        self._servers = servers
        self._key = key
        self._last: StreamId | None = None
        self._notified: dict[str, StreamId] = {}
        """The latest notification of each queue."""
        self._failures = 0
        """Failed reads. A waiter from before a failure is woken, since it may have missed something."""
        self._waiting: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def wait(self, queues: Collection[str], since: StreamId | None, timeout: float) -> bool:  # noqa: ASYNC109 - of the protocol
        """Wait for a notification of one of the queues after a stream id, or from now on; return whether one came."""
        if self._last is None and since is not None:
            self._last = since
        after = since or self._last or (0, 0)
        if self._is_notified(queues, after):
            return True
        event, failures = asyncio.Event(), self._failures
        self._waiting.add(event)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen())
        try:
            async with asyncio.timeout(timeout):
                while self._failures == failures and not self._is_notified(queues, after):
                    event.clear()
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            # A wait on several partitions is cancelled when one of them notifies.
            self._waiting.discard(event)
        return self._failures != failures or self._is_notified(queues, after)

    def _is_notified(self, queues: Collection[str], after: StreamId) -> bool:
        return any(self._notified.get(queue, (0, 0)) > after for queue in (*queues, EVERY_QUEUE))

    async def _listen(self) -> None:
        while not self._is_closed:
            try:
                with closed_as_broken():
                    found = await self._read()
            except DRIVER_ERRORS:
                # Notifications may be missed meanwhile, so every waiter checks for itself.
                self._failures += 1
                self._wake()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._take(_notifications(found))

    async def _read(self) -> Any:  # noqa: ANN401 - as the driver reads it
        node = await self._servers.node_of(self._key)
        if self._last is None:
            last = await node.execute("XREVRANGE", self._key, "+", "-", "COUNT", 1)
            self._last = parse_stream_id(last[0][0]) if last else (0, 0)
        after = f"{self._last[0]}-{self._last[1]}"
        return await node.block("XREAD", "COUNT", MAX_NOTIFICATIONS, "BLOCK", _BLOCK_MS, "STREAMS", self._key, after)

    def _take(self, notifications: list[tuple[StreamId, str]]) -> None:
        for stream_id, queue in notifications:
            self._last = stream_id
            self._note(queue, stream_id)
        if len(notifications) >= MAX_NOTIFICATIONS and self._last is not None:
            self._note(EVERY_QUEUE, self._last)

    def _note(self, queue: str, stream_id: StreamId) -> None:
        self._notified[queue] = max(self._notified.get(queue, (0, 0)), stream_id)
        self._wake()

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    async def close(self) -> None:
        """Stop reading."""
        self._is_closed = True
        task, self._task = self._task, None
        while task is not None and not task.done():
            # A cancel may be swallowed, and the task go on reading: before Python 3.12 `wait_for` does so when the
            # cancel comes together with the result.
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_SECONDS)


def _notifications(found: Any) -> list[tuple[StreamId, str]]:  # noqa: ANN401 - as the driver reads it
    """Return the id and the queue of each notification that XREAD found."""
    return [
        (parse_stream_id(text), queue.decode())
        for _, entries in found or ()
        for text, fields in entries
        for queue in fields.values()
    ]
