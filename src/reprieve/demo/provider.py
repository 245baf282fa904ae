"""The mail provider of the demo: a small SMTP server on a loopback port, which can be well, poor, or gone."""

import asyncio
import contextlib
import random
import re
from collections import Counter
from typing import Literal, TypeAlias

Health: TypeAlias = Literal["healthy", "brown-out", "down"]

POOR = 0.35
"""The share of mails that are turned away in a brown-out."""

SERVING = 0.1
"""Seconds that a mail takes."""

_MESSAGE_ID = re.compile(rb"^Message-ID:\s*<([0-9a-f-]{36})@", re.IGNORECASE | re.MULTILINE)
_WORKER = re.compile(rb"^X-Worker:\s*(\d+)", re.IGNORECASE | re.MULTILINE)


class Provider:
    """Takes mail, and remembers what it took."""

    def __init__(self, seed: int) -> None:
        """Be healthy, and know nobody."""
        self._rng = random.Random(seed)  # noqa: S311 - chance of a demo
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.health: Health = "healthy"
        self.refused: set[str] = set()
        """Mailboxes that are full, for now."""
        self.calls = 0
        self.turned_away = 0
        self.taken: Counter[str] = Counter()
        """How often each mail was taken. One that comes again is known by its Message-ID and delivered once."""
        self.called = asyncio.Event()
        """Set once it has taken a mail."""
        self.workers: dict[int, int] = {}
        """The worker processes that called, each with the number of its last call."""

    async def start(self) -> None:
        """Listen; again on the same port after an outage."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Hang up and refuse every connection from now on."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.transport.abort()

    async def become(self, health: Health) -> None:
        """Change how it is."""
        if health == "down":
            await self.stop()
        elif self.health == "down":
            await self.start()
        self.health = health

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        self.calls += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._converse(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(line: str) -> None:
            writer.write(line.encode() + b"\r\n")

        say("220 provider.example ready")
        while line := await reader.readline():
            word, _, rest = line.decode("ascii", "replace").strip().partition(" ")
            match word.upper():
                case "EHLO" | "HELO":
                    say("250 provider.example")
                case "MAIL" if self.health == "brown-out" and self._rng.random() < POOR:
                    self.turned_away += 1
                    say("451 4.3.2 please try again later")
                case "RCPT" if rest.partition("<")[2].partition(">")[0] in self.refused:
                    self.turned_away += 1
                    say("550 5.2.2 mailbox full")
                case "DATA":
                    say("354 go ahead")
                    await writer.drain()
                    mail = await reader.readuntil(b"\r\n.\r\n")
                    await asyncio.sleep(SERVING)
                    if writer.is_closing():
                        return
                    # Nothing may come between the two: what is taken is answered.
                    self._take(mail)
                    say("250 2.0.0 taken")
                case "QUIT":
                    say("221 2.0.0 bye")
                    await writer.drain()
                    return
                case _:
                    say("250 2.0.0 ok")
            await writer.drain()

    def _take(self, mail: bytes) -> None:
        known = _MESSAGE_ID.search(mail)
        worker = _WORKER.search(mail)
        if worker is not None:
            self.workers[int(worker[1])] = self.calls
            self.called.set()
        if known is not None:
            self.taken[known[1].decode()] += 1
