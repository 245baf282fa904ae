"""A gateway in front of a server, in a thread of its own, which can cut some of its connections off.

A connection that is cut off stays open and carries nothing in either direction, as if its packets were dropped.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.servers.ports import free_port

FIRST_REQUESTS = 4
"""What a client sends first shows what it is: a replica says who it is after a PING."""


class Gateway:
    """Carries bytes between its port and the port of a server."""

    def __init__(self, target: int, is_severable: Callable[[bytes], bool]) -> None:
        """Choose a port. `is_severable` says of the first bytes from a client whether `cut` silences it."""
        self.port = free_port()
        self._target = target
        self._is_severable = is_severable
        self._loop: asyncio.AbstractEventLoop
        self._open, self._closed = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._is_listening = threading.Event()

    def start(self) -> None:
        """Begin to accept connections."""
        self._thread.start()
        assert self._is_listening.wait(10)

    def cut(self) -> None:
        """Silence the severable connections, those that are there and those that come."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self) -> None:
        """Carry again, also what was sent meanwhile."""
        self._loop.call_soon_threadsafe(self._open.set)

    def close(self) -> None:
        """End every connection."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closed.set)
            self._thread.join()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._is_listening.set()
        await self._closed.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back: asyncio.StreamWriter | None = None
        link = _Link()
        try:
            with suppress(OSError, asyncio.CancelledError):  # cancelled when the gateway is closed
                there, back = await asyncio.open_connection("127.0.0.1", self._target)
                await asyncio.gather(self._carry(reader, back, link, is_request=True), self._carry(there, writer, link))
        finally:
            ends = [end for end in (back, writer) if end is not None]
            for end in ends:
                end.close()
            for end in ends:
                # The event loop ends with the gateway: it would not close what is only about to be closed.
                with suppress(OSError):
                    await end.wait_closed()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link", *, is_request: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if is_request and link.requests < FIRST_REQUESTS:
                    link.requests += 1
                    link.is_severable |= self._is_severable(data)
                if link.is_severable:
                    await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


class _Link:
    """One connection."""

    requests = 0
    is_severable = False
