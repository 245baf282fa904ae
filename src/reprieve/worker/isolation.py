"""Isolation: attempts in processes of their own, each busy with one at a time.

A process that dies takes only the job of its own attempt with it. Messages through the socket are JSON, one in a line.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

import msgspec

from reprieve.context import Running
from reprieve.core.job import Job
from reprieve.core.outcome import Crashed, Outcome, undecodable
from reprieve.core.record import Record
from reprieve.declaration import Declaration
from reprieve.importing import MAIN
from reprieve.worker.lifespans import MIN_STOP_SECONDS
from reprieve.worker.logs import Logs

T = TypeVar("T")

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Bytes of one message."""

FINAL_READ_SECONDS = 0.5
"""Seconds to read what a process wrote before its end."""

MAX_IDLE_PROCESSES = 4
"""Processes that are kept without an attempt."""

MAX_IDLE_SECONDS = 60.0
"""Seconds that a process is kept without an attempt."""

RETIRE_TIMEOUT_SECONDS = 30.0
"""Seconds that a process has to leave the lifespans of its app when it is not needed any more."""

OUTLIVE_SECONDS = 0.25
"""Seconds that a worker must outlive a process before its end counts: what kills all processes of a worker one by one
(a machine that runs out of memory, an operator) is not the job's doing."""

MAX_STARTS = 3
"""New processes that may end before they accept a job; then the attempt has failed."""


class Order(Record):
    """What an isolated process is told to run."""

    module: str
    name: str
    job: Job


class Report(Record):
    """What it reports: first that it has the order, then progress at any time, and in the end an outcome."""

    is_accepted: bool = False
    is_begun: bool = False
    """Whether everything is loaded and the task is about to run."""
    progress: bytes | None = None
    outcome: Outcome | None = None


class Start(Record):
    """What an isolated process is told first; through the socket, since every user can read a command line."""

    parent: int
    path: list[str]
    target: str = ""
    """The app, as `module:name`; without one, each task is loaded from its own module."""
    url: str = ""
    """The URL of the worker's store; empty uses the app's own."""
    logs: Logs | None = None
    """How the worker logs; None leaves logging to the app."""


_decode = msgspec.json.Decoder(Report).decode


class Isolated:
    """One process, the leader of its own process group: what it starts can be ended with it."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Take the process and its end of the socket."""
        self._process = process
        self._reader = reader
        self._writer = writer
        self._ended = asyncio.create_task(process.wait())

    @classmethod
    async def start(cls, target: str = "", url: str = "", logs: Logs | None = None) -> Self:
        """Start a process for the app of a target, on the store of a URL."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_MESSAGE_BYTES)
            start = Start(parent=os.getpid(), path=sys.path, target=target, url=url, logs=logs)
            writer.write(msgspec.json.encode(start) + b"\n")
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "reprieve.worker.isolated",
                    str(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    stdin=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                writer.close()
                raise
        return cls(process, reader, writer)

    @property
    def is_alive(self) -> bool:
        """Whether the process is not known to have ended."""
        return self._process.returncode is None

    async def run(self, order: Order, running: Running) -> Outcome | None:
        """Run one attempt; a process that ends without an outcome has crashed.

        None when the process ended before it had the order: nothing was run, and another process can take it.
        """
        is_accepted = False
        with contextlib.suppress(ConnectionError):
            self._writer.write(msgspec.json.encode(order) + b"\n")
            await self._writer.drain()
            while line := await self._read():
                report = _decode(line)
                is_accepted = True
                if report.is_begun and running.begin is not None:
                    running.begin()
                if report.progress is not None:
                    running.note(report.progress)
                if report.outcome is not None:
                    return report.outcome
        return Crashed(alone=True) if is_accepted else None

    async def _read(self) -> bytes:
        """Return the next line; empty when the process has ended, even if a child of it still holds the socket."""
        line = asyncio.create_task(self._reader.readline())
        try:
            await asyncio.wait((line, self._ended), return_when=asyncio.FIRST_COMPLETED)
            # What it wrote before its end can still be read; a child of it may hold the socket open after that.
            async with asyncio.timeout(FINAL_READ_SECONDS):
                return await line
        except TimeoutError:
            return b""
        finally:
            line.cancel()

    async def kill(self) -> None:
        """End the process at once, with everything that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self.retire()

    async def retire(self, seconds: float = 0.0) -> None:
        """End a process without an attempt; programs that its attempts have started go on.

        It has so many seconds to leave the lifespans of its app; then it is killed.
        """
        self._writer.close()
        if seconds:
            await asyncio.wait((self._ended,), timeout=seconds)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        # A caller that is cancelled here must not cancel `_ended`, which others wait for.
        await asyncio.wait((self._ended,))


class Processes:
    """A pool of isolated processes: one for each attempt under way, and a few idle ones for the next attempts."""

    def __init__(self, *, target: str = "", url: str = "", logs: Logs | None = None) -> None:
        """Start none yet. Processes load the app of the target, use the store of the URL, and log as `logs` says."""
        self._target = target
        self._url = url
        self._logs = logs
        self._retire_seconds = RETIRE_TIMEOUT_SECONDS
        self._idle: dict[Isolated, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, declaration: Declaration, running: Running) -> Outcome:
        """Run one attempt; an attempt that ends its process has crashed. Cancelled, it kills the process."""
        if declaration.module == MAIN and not self._target:
            return undecodable(
                f"{declaration.name} is defined where no other process can import it from; a task that runs in a "
                "process of its own must be defined in a module"
            )
        order = Order(module=declaration.module, name=declaration.function.__qualname__, job=running.job)
        failed = 0
        while failed < MAX_STARTS:
            process, is_new = await self._take()
            try:
                outcome = await process.run(order, running)
            except BaseException:
                await asyncio.shield(self._begin(process.kill()))
                raise
            if outcome is not None and not isinstance(outcome, Crashed):
                self._keep(process)
                return outcome
            await asyncio.shield(self._begin(process.kill()))
            if outcome is not None:
                await asyncio.sleep(OUTLIVE_SECONDS)
                return outcome
            failed += is_new
        message = f"{MAX_STARTS} processes ended before they took the job; see what they wrote to the worker's output"
        raise ChildProcessError(message)

    async def _take(self) -> tuple[Isolated, bool]:
        """Return a process, and whether it is new: only a new one that dies counts as a failed start."""
        while self._idle:
            process, timer = self._idle.popitem()
            timer.cancel()
            if process.is_alive:
                return process, False
            self._begin(process.retire(self._retire_seconds))
        return await self._start(), True

    async def _start(self) -> Isolated:
        """Start a process. If the caller is cancelled meanwhile, the process is kept for the next attempt."""
        starting = self._begin(Isolated.start(self._target, self._url, self._logs))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._keep_late)
            raise

    def _keep_late(self, starting: asyncio.Task[Isolated]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            self._keep(starting.result())

    def _keep(self, process: Isolated) -> None:
        """Keep a process for the next attempt, unless enough are idle, and not for ever: it takes up memory."""
        if len(self._idle) >= MAX_IDLE_PROCESSES:
            self._begin(process.retire(self._retire_seconds))
        else:
            self._idle[process] = asyncio.get_running_loop().call_later(MAX_IDLE_SECONDS, self._let_go, process)

    def _let_go(self, process: Isolated) -> None:
        del self._idle[process]
        self._begin(process.retire(self._retire_seconds))

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something in a task that goes on when its caller is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self, seconds: float = RETIRE_TIMEOUT_SECONDS) -> None:
        """End every process; idle ones have so many seconds to leave the lifespans of their app."""
        self._retire_seconds = max(MIN_STOP_SECONDS, seconds)
        while self._tasks or self._idle:
            for process in list(self._idle):
                self._idle[process].cancel()
                self._let_go(process)
            await asyncio.gather(*self._tasks, return_exceptions=True)
