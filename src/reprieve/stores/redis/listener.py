"""The listener: waits for the notifications of a partition, for all waiters of one event loop.

Notifications are entries of a short stream. A waiter names the last entry that it knows of, so it misses nothing that
was added in between, and any number of waiters may react to the same entry.
"""

import asyncio
from collections.abc import Collection
from typing import Any, TypeAlias

from reprieve.stores.redis.error_mapping import DRIVER_ERRORS, closed_as_broken

StreamId: TypeAlias = tuple[int, int]
"""The id of a stream entry: milliseconds and a number."""

EVERY_QUEUE = "*"
"""The queue of a notification that is for all queues."""

MAX_NOTIFICATIONS = 64
"""Entries that the stream keeps: a reader that finds as many may have missed others. See calls.lua."""

MAX_KNOWN_QUEUES = 1_000
"""Queues whose notifications are told apart; beyond it, the next notification wakes the waiters of all."""

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

    def __init__(self, client: Any, key: str) -> None:  # noqa: ANN401 - a client of one of several kinds
        """Take a client, of which the listener uses one connection, and the stream's key."""
        self._client = client
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
            self._take(_entries(found))

    async def _read(self) -> Any:  # noqa: ANN401 - the shape depends on client and protocol
        # A client of a Cluster that does not know the slots yet asks any node, and would be redirected.
        await self._client.initialize()
        if self._last is None:
            last = await self._client.execute_command("XREVRANGE", self._key, "+", "-", "COUNT", 1)
            self._last = parse_stream_id(last[0][0]) if last else (0, 0)
        after = f"{self._last[0]}-{self._last[1]}"
        return await self._client.execute_command(
            "XREAD", "COUNT", MAX_NOTIFICATIONS, "BLOCK", _BLOCK_MS, "STREAMS", self._key, after
        )

    def _take(self, entries: list[tuple[bytes, list[bytes]]]) -> None:
        for text, fields in entries:
            self._last = parse_stream_id(text)
            self._note(fields[1].decode(), self._last)
        if len(entries) >= MAX_NOTIFICATIONS and self._last is not None:
            self._note(EVERY_QUEUE, self._last)

    def _note(self, queue: str, stream_id: StreamId) -> None:
        self._notified[queue] = max(self._notified.get(queue, (0, 0)), stream_id)
        if len(self._notified) > MAX_KNOWN_QUEUES:
            self._notified = {EVERY_QUEUE: max(self._notified.values())}
        self._wake()

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    async def close(self) -> None:
        """Stop reading."""
        self._is_closed = True
        task, self._task = self._task, None
        while task is not None and not task.done():
            # The client may swallow a cancel and go on reading: before Python 3.12 `wait_for` does so when the cancel
            # comes together with the result.
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_SECONDS)


def _entries(found: Any) -> list[tuple[bytes, list[bytes]]]:  # noqa: ANN401 - the shape depends on client and protocol
    """Return id and fields of each entry that XREAD found."""
    if not found:
        return []
    streams = list(found.values()) if isinstance(found, dict) else [stream[1] for stream in found]
    entries: list[tuple[bytes, list[bytes]]] = []
    for stream in streams:
        for item in stream:
            for entry in item if item and isinstance(item[0], list | tuple) else [item]:
                fields = entry[1]
                flat = [part for pair in fields.items() for part in pair] if isinstance(fields, dict) else list(fields)
                entries.append((entry[0], flat))
    return entries
