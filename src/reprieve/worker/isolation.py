"""Isolation: attempts in processes of their own, each busy with one at a time.

Whatever an attempt does to its process, nobody else is hurt: one that dies takes only its own job with it. What goes
through the socket is JSON.
"""

import asyncio
import contextlib
import os
import socket
import sys
from typing import Self

import msgspec

from reprieve.context import Running
from reprieve.core.job import Job
from reprieve.core.outcome import Crashed, Outcome, undecodable
from reprieve.core.record import Record
from reprieve.declaration import Declaration

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one message at the most."""

TRIES = 3
"""New processes that may end before they have taken a job, until the attempt counts as failed."""


class Order(Record):
    """What an isolated process is told to run."""

    module: str
    name: str
    job: Job


class Report(Record):
    """What it answers: first that it has the order, then progress at any time, and in the end an outcome."""

    is_accepted: bool = False
    progress: bytes | None = None
    outcome: Outcome | None = None


class Start(Record):
    """How an isolated process is started."""

    parent: int
    file: int
    path: list[str]
    target: str = ""
    """The app, as `module:name`; without one each task is looked for in its module."""
    url: str = ""
    """The store that the worker uses, whatever the app says; empty leaves it to the app."""


_decode = msgspec.json.Decoder(Report).decode


class Isolated:
    """One process."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Take the process and its end of the socket."""
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, target: str = "", url: str = "") -> Self:
        """Start a process, for the app of a target and on the store of a URL."""
        ours, theirs = socket.socketpair()
        with theirs:
            start = Start(parent=os.getpid(), file=theirs.fileno(), path=sys.path, target=target, url=url)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "reprieve.worker.isolated",
                msgspec.json.encode(start).decode(),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
        return cls(process, reader, writer)

    @property
    def is_alive(self) -> bool:
        """Whether the process was alive when somebody last looked."""
        return self._process.returncode is None

    async def run(self, order: Order, running: Running) -> Outcome | None:
        """Run one attempt; a process that ends without an answer has crashed.

        None when the process ended before it had the order: then nothing was run, and another can take it.
        """
        is_accepted = False
        with contextlib.suppress(ConnectionError):
            self._writer.write(msgspec.json.encode(order) + b"\n")
            await self._writer.drain()
            while line := await self._reader.readline():
                report = _decode(line)
                is_accepted = True
                if report.progress is not None:
                    running.note(report.progress)
                if report.outcome is not None:
                    return report.outcome
        return Crashed() if is_accepted else None

    async def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._writer.close()
        await self._process.wait()


class Processes:
    """As many isolated processes as attempts need, kept for the next ones."""

    def __init__(self, *, target: str = "", url: str = "") -> None:
        """Start none yet. They load the app of the target, and use the store of the URL."""
        self._target = target
        self._url = url
        self._idle: list[Isolated] = []

    async def run(self, declaration: Declaration, running: Running) -> Outcome:
        """Run one attempt; one that takes its process down is reported as crashed. Cancelled, the process is killed."""
        if declaration.module == "__main__" and not self._target:
            return undecodable(
                f"{declaration.name} is defined in the script itself; a task that runs in a process of its own "
                "must live in a module that can be imported"
            )
        order = Order(module=declaration.module, name=declaration.function.__qualname__, job=running.job)
        failed = 0
        while failed < TRIES:
            process, is_new = await self._take()
            try:
                outcome = await process.run(order, running)
            except BaseException:
                await asyncio.shield(process.kill())
                raise
            if outcome is not None and not isinstance(outcome, Crashed):
                self._idle.append(process)
                return outcome
            await process.kill()
            if outcome is not None:
                return outcome
            failed += is_new
        message = f"{TRIES} processes ended before they took the job; see what they wrote to the worker's output"
        raise ChildProcessError(message)

    async def _take(self) -> tuple[Isolated, bool]:
        """Answer a process, and whether it is new: an idle one may have died, which is nobody's fault who comes now."""
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process, False
            await process.kill()
        return await Isolated.start(self._target, self._url), True

    async def close(self) -> None:
        """End every process."""
        idle, self._idle = self._idle, []
        for process in idle:
            await process.kill()
