"""The mail provider of the demo: a small SMTP server on a loopback port, which can be healthy, browned out or down."""

import asyncio
import contextlib
import random
import re
from collections import Counter
from typing import Literal, TypeAlias

Health: TypeAlias = Literal["healthy", "brown-out", "down"]

REFUSED_SHARE = 0.35
"""The share of mails that are refused in a brown-out."""

DELIVERY_SECONDS = 0.1
"""How long the delivery of a mail takes."""

_MESSAGE_ID = re.compile(rb"^Message-ID:\s*<([0-9a-f-]{36})@", re.IGNORECASE | re.MULTILINE)
_WORKER = re.compile(rb"^X-Worker:\s*(\d+)", re.IGNORECASE | re.MULTILINE)


class Provider:
    """An SMTP server that counts the mails it accepts."""

    def __init__(self, seed: int) -> None:
        """Create a healthy provider; `start` opens its port."""
        self._rng = random.Random(seed)  # noqa: S311 - randomness of a demo
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.health: Health = "healthy"
        self.refused: set[str] = set()
        """Recipients whose mailbox is full."""
        self.calls = 0
        self.refusals = 0
        self.accepted: Counter[str] = Counter()
        """How often each Message-ID was accepted; a duplicate is delivered once."""
        self.called = asyncio.Event()
        """Set once it has accepted a mail."""
        self.workers: dict[int, int] = {}
        """The worker processes that called, each with the number of its last call."""

    async def start(self) -> None:
        """Listen, after an outage on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.transport.abort()

    async def become(self, health: Health) -> None:
        """Change the health of the provider."""
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
                case "MAIL" if self.health == "brown-out" and self._rng.random() < REFUSED_SHARE:
                    self.refusals += 1
                    say("451 4.3.2 please try again later")
                case "RCPT" if rest.partition("<")[2].partition(">")[0] in self.refused:
                    self.refusals += 1
                    say("550 5.2.2 mailbox full")
                case "DATA":
                    say("354 go ahead")
                    await writer.drain()
                    mail = await reader.readuntil(b"\r\n.\r\n")
                    await asyncio.sleep(DELIVERY_SECONDS)
                    if writer.is_closing():
                        return
                    # No await between the two: an accepted mail gets its reply.
                    self._accept(mail)
                    say("250 2.0.0 accepted")
                case "QUIT":
                    say("221 2.0.0 bye")
                    await writer.drain()
                    return
                case _:
                    say("250 2.0.0 ok")
            await writer.drain()

    def _accept(self, mail: bytes) -> None:
        known = _MESSAGE_ID.search(mail)
        worker = _WORKER.search(mail)
        if worker is not None:
            self.workers[int(worker[1])] = self.calls
            self.called.set()
        if known is not None:
            self.accepted[known[1].decode()] += 1
