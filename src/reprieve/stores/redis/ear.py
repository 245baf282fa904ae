"""The ear: hears the bell of a partition, for everybody on one event loop.

The bell is a short stream. Whoever waits names the place up to which it has heard, so nothing that rang in between is
missed, and any number may hear the same ring.
"""

import asyncio
from collections.abc import Collection
from typing import Any, TypeAlias

from reprieve.stores.redis.faults import FAULTS, closed_is_broken

Place: TypeAlias = tuple[int, int]
"""A place in the stream: milliseconds and a number."""

EVERYTHING = "*"
"""The queue of a ring that is for all."""

_LISTENS = 5_000
"""Milliseconds for which the server keeps a call that hears nothing."""

_HEEDS = 0.05
"""Seconds in which whoever listens heeds that it is over."""

_LENGTH = 64
"""Rings that the stream keeps: whoever reads as many may have missed others."""


def place_of(text: bytes | str) -> Place:
    """Read a place."""
    milliseconds, _, number = (text.decode() if isinstance(text, bytes) else text).partition("-")
    return int(milliseconds), int(number or 0)


class Ear:
    """Listens from the first time that somebody waits, until it is closed."""

    def __init__(self, client: Any, key: str) -> None:  # noqa: ANN401 - a client of one of several kinds
        """Take a client, of which the ear uses one connection, and the stream."""
        self._client = client
        self._key = key
        self._heard: Place | None = None
        self._rings: dict[str, Place] = {}
        self._faults = 0
        """How often nobody could listen: whoever waited then is woken, and has nothing to hear afterwards."""
        self._waiting: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def wait(self, queues: Collection[str], since: Place | None, at_most: float) -> bool:
        """Wait until it rings for one of the queues after a place; without one, from now on."""
        if self._heard is None and since is not None:
            self._heard = since
        after = since or self._heard or (0, 0)
        if self._has_rung(queues, after):
            return True
        event, faults = asyncio.Event(), self._faults
        self._waiting.add(event)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen())
        try:
            async with asyncio.timeout(at_most):
                while self._faults == faults and not self._has_rung(queues, after):
                    event.clear()
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            # Those who wait at several bells are cancelled when one of them rings.
            self._waiting.discard(event)
        return self._faults != faults or self._has_rung(queues, after)

    def _has_rung(self, queues: Collection[str], after: Place) -> bool:
        return any(self._rings.get(queue, (0, 0)) > after for queue in (*queues, EVERYTHING))

    async def _listen(self) -> None:
        while not self._is_closed:
            try:
                with closed_is_broken():
                    found = await self._read()
            except FAULTS:
                # What rings while nobody hears must not be missed: everybody looks for themselves.
                self._faults += 1
                self._wake()
                await asyncio.sleep(0.2)
                continue
            self._take(_entries(found))

    async def _read(self) -> Any:  # noqa: ANN401 - the shape depends on client and protocol
        # Before it has read who serves what, a client of a Cluster asks anybody, and would be sent elsewhere.
        await self._client.initialize()
        if self._heard is None:
            last = await self._client.execute_command("XREVRANGE", self._key, "+", "-", "COUNT", 1)
            self._heard = place_of(last[0][0]) if last else (0, 0)
        place = f"{self._heard[0]}-{self._heard[1]}"
        return await self._client.execute_command(
            "XREAD", "COUNT", _LENGTH, "BLOCK", _LISTENS, "STREAMS", self._key, place
        )

    def _note(self, queue: str, place: Place) -> None:
        self._rings[queue] = max(self._rings.get(queue, (0, 0)), place)
        self._wake()

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    def _take(self, entries: list[tuple[bytes, list[bytes]]]) -> None:
        for text, fields in entries:
            self._heard = place = place_of(text)
            self._note(fields[1].decode(), place)
        if len(entries) >= _LENGTH and self._heard is not None:
            self._note(EVERYTHING, self._heard)

    async def close(self) -> None:
        """Stop listening."""
        self._is_closed = True
        task, self._task = self._task, None
        while task is not None and not task.done():
            # A cancel can get lost in the client, which then goes on to listen: before Python 3.12 `wait_for` takes one
            # for itself that comes together with what it waits for.
            task.cancel()
            await asyncio.wait({task}, timeout=_HEEDS)


def _entries(found: Any) -> list[tuple[bytes, list[bytes]]]:  # noqa: ANN401 - the shape depends on client and protocol
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
