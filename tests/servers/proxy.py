"""Something between us and a server, on loopback: it can lead elsewhere, and it can fall silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """Carries bytes to and fro."""

    def __init__(self, target: str) -> None:
        """Lead to the server of a URL."""
        self.lead_to(target)
        self._speaks = asyncio.Event()
        self._speaks.set()
        self.delay = 0.0
        """Seconds that bytes take, in each direction."""
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.url = ""

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._serving)

    def lead_to(self, target: str) -> None:
        """Lead new connections to the server of another URL."""
        self._target = urlsplit(target)

    def fall_silent(self) -> None:
        """Take what is sent, and carry it nowhere."""
        self._speaks.clear()

    def speak(self) -> None:
        """Carry again, also what was sent meanwhile."""
        self._speaks.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until either side ends it."""
        me = asyncio.current_task()
        assert me is not None
        self._serving[me] = writer
        await self._speaks.wait()
        there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
        ways = [asyncio.create_task(self._carry(*ends)) for ends in ((reader, back), (there, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for end in (back, writer):
            end.close()
        await asyncio.wait(ways)
        del self._serving[me]

    async def hang_up(self) -> None:
        """End every connection."""
        self.speak()
        for writer in self._serving.values():
            writer.close()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes one way; those that follow do not wait for those that are on their way."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            data = b"-"
            while data:
                at, data = await under_way.get()
                await asyncio.sleep(at - loop.time())
                await self._speaks.wait()
                writer.write(data)
                await writer.drain()

        delivery = asyncio.create_task(deliver())
        with suppress(OSError):
            data = b"-"
            while data:
                data = await reader.read(65_536)
                under_way.put_nowait((loop.time() + self.delay, data))
        under_way.put_nowait((loop.time(), b""))
        with suppress(OSError):
            await delivery


@asynccontextmanager
async def running(target: str) -> AsyncIterator[Proxy]:
    """Return a proxy that leads to the server of a URL, for as long as this lasts."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    parts = urlsplit(target)
    user = f"{parts.username}@" if parts.username else ""
    proxy.url = parts._replace(netloc=f"{user}{host}:{port}").geturl()
    async with server:
        try:
            yield proxy
        finally:
            await proxy.hang_up()
