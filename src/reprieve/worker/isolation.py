"""Isolation: attempts in processes of their own, each busy with one at a time.

Whatever an attempt does to its process, nobody else is hurt: one that dies takes only its own job with it. What goes
through the socket is JSON.
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
from reprieve.worker.logs import Logs
from reprieve.worker.opening import STOP_AT_LEAST_SECONDS

T = TypeVar("T")

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one message at the most."""

LAST_WORDS = 0.5
"""Seconds that what a process wrote before its end may take to be read."""

MOST_IDLE, IDLE_FOR = 4, 60.0
"""How many processes without an attempt are kept, and for how many seconds."""

RETIRE_WITHIN_SECONDS = 30.0
"""Seconds that a process which is not needed any more has to leave the lifespans of its app, unless it is told less."""

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
    is_begun: bool = False
    """Whether everything is loaded and the task is about to run."""
    progress: bytes | None = None
    outcome: Outcome | None = None


class Start(Record):
    """What an isolated process is told first; through the socket, since everybody may read a command line."""

    parent: int
    path: list[str]
    target: str = ""
    """The app, as `module:name`; without one each task is looked for in its module."""
    url: str = ""
    """The store that the worker uses, whatever the app says; empty leaves it to the app."""
    logs: Logs | None = None
    """How the worker logs; None leaves it to the app."""


_decode = msgspec.json.Decoder(Report).decode


class Isolated:
    """One process, the leader of a session of its own: whatever it starts can be ended with it."""

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
        """Start a process, for the app of a target and on the store of a URL, which logs as its worker."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
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
            while line := await self._hear():
                report = _decode(line)
                is_accepted = True
                if report.is_begun and running.begin is not None:
                    running.begin()
                if report.progress is not None:
                    running.note(report.progress)
                if report.outcome is not None:
                    return report.outcome
        return Crashed() if is_accepted else None

    async def _hear(self) -> bytes:
        """Return the next line; nothing when the process has ended, even if a child of it still holds the socket."""
        line = asyncio.create_task(self._reader.readline())
        try:
            await asyncio.wait((line, self._ended), return_when=asyncio.FIRST_COMPLETED)
            # What it wrote before its end is on its way, and so is the end, unless somebody holds the socket.
            async with asyncio.timeout(LAST_WORDS):
                return await line
        except TimeoutError:
            return b""
        finally:
            line.cancel()

    async def kill(self) -> None:
        """End the process at once, and whatever it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self.retire()

    async def retire(self, within: float = 0.0) -> None:
        """End a process that has nothing to do; what its attempts have left running on purpose goes on.

        It has so many seconds to leave the lifespans of its app, and is killed then.
        """
        self._writer.close()
        if within:
            await asyncio.wait((self._ended,), timeout=within)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        # A caller that is cancelled while it waits must not cancel what others wait for.
        await asyncio.wait((self._ended,))


class Processes:
    """As many isolated processes as attempts need; a few are kept for the next ones, for a while."""

    def __init__(self, *, target: str = "", url: str = "", logs: Logs | None = None) -> None:
        """Start none yet. They load the app of the target, use the store of the URL, and log as it is said."""
        self._target = target
        self._url = url
        self._logs = logs
        self._retire_within = RETIRE_WITHIN_SECONDS
        self._idle: dict[Isolated, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, declaration: Declaration, running: Running) -> Outcome:
        """Run one attempt; one that takes its process down is reported as crashed. Cancelled, the process is killed."""
        if declaration.module == MAIN and not self._target:
            return undecodable(
                f"{declaration.name} is defined where no other process can import it from; a task that runs in a "
                "process of its own must be defined in a module"
            )
        order = Order(module=declaration.module, name=declaration.function.__qualname__, job=running.job)
        failed = 0
        while failed < TRIES:
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
                return outcome
            failed += is_new
        message = f"{TRIES} processes ended before they took the job; see what they wrote to the worker's output"
        raise ChildProcessError(message)

    async def _take(self) -> tuple[Isolated, bool]:
        """Return a process, and whether it is new: an idle one may have died, which is nobody's fault who comes now."""
        while self._idle:
            process, timer = self._idle.popitem()
            timer.cancel()
            if process.is_alive:
                return process, False
            self._begin(process.retire(self._retire_within))
        return await self._start(), True

    async def _start(self) -> Isolated:
        """Start a process. Whoever is cancelled meanwhile leaves it to the next."""
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
        """Keep a process for the next attempt, if there are not enough, and not for ever: it takes up memory."""
        if len(self._idle) >= MOST_IDLE:
            self._begin(process.retire(self._retire_within))
        else:
            self._idle[process] = asyncio.get_running_loop().call_later(IDLE_FOR, self._let_go, process)

    def _let_go(self, process: Isolated) -> None:
        del self._idle[process]
        self._begin(process.retire(self._retire_within))

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something that must come to its end, whoever waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self, within: float = RETIRE_WITHIN_SECONDS) -> None:
        """End every process; those without an attempt have so many seconds to leave the lifespans of their app."""
        self._retire_within = max(STOP_AT_LEAST_SECONDS, within)
        while self._tasks or self._idle:
            for process in list(self._idle):
                self._idle[process].cancel()
                self._let_go(process)
            await asyncio.gather(*self._tasks, return_exceptions=True)
