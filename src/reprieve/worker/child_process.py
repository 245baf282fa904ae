"""A child process as its supervisor sees it: what it is told at its start, and how it is ended."""

import asyncio
import contextlib
import signal
import sys
from typing import Self

import msgspec

from reprieve.clock import ticks
from reprieve.core.job import Job
from reprieve.core.outcome import Crashed, Interrupted, Outcome, overran
from reprieve.core.record import Record
from reprieve.worker.in_flight import InFlight, InFlightTable
from reprieve.worker.lifespans import START_FAILED_STATUS
from reprieve.worker.logs import Logs

STOP, STOP_NOW, RETIRE = signal.SIGTERM, signal.SIGUSR2, signal.SIGUSR1
"""Signals that end a child: when its attempts have ended, but within the grace; at once; or when its attempts have
ended, however long that takes. Three signals, since two of the same kind in quick succession arrive as one."""


class ChildConfiguration(Record):
    """What a child is told when it starts."""

    target: str
    session: str
    url: str
    queues: tuple[str, ...]
    slots: int
    grace: float
    parent: int
    in_flight_file: int
    """The descriptor of the in-flight table."""
    parent_pipe: int
    """The descriptor of a pipe that closes when the supervisor ends."""
    logs: Logs


class ChildProcess:
    """One child, as its supervisor sees it."""

    def __init__(self, process: asyncio.subprocess.Process, session: str, in_flight: InFlightTable) -> None:
        """Take the process, its session, and the in-flight table that it writes."""
        self.session = session
        self.in_flight = in_flight
        self.started = ticks()
        self.is_ending = False
        """Whether the supervisor ended it."""
        self.is_failed_start = False
        """Whether the lifespans of its app did not start."""
        self.is_blocked = False
        """Whether the supervisor killed it because its event loop did not turn."""
        self.overdue: frozenset[str] = frozenset()
        """Jobs that the supervisor killed it for."""
        self.had_started: frozenset[tuple[str, int]] = frozenset()
        """Attempts that had started and not ended when the process ended: the ids of their jobs, and their numbers."""
        self.had_ended: frozenset[tuple[str, int]] = frozenset()
        """The last attempts that had ended before."""
        self.heartbeat_at = self.started
        """When, by `ticks`, the last heartbeat of its session was sent."""
        self.announced_prefetch = 0
        """How many jobs it fetches ahead, as that heartbeat said."""
        self.retired = asyncio.Event()
        self._process = process

    @classmethod
    async def start(cls, configuration: ChildConfiguration) -> Self:
        """Start a child, which waits for its configuration; raises `OSError`."""
        in_flight = InFlightTable(configuration.slots, configuration.in_flight_file)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "reprieve.worker.child_start"),
            pass_fds=[configuration.in_flight_file, configuration.parent_pipe],
            stdin=asyncio.subprocess.PIPE,
        )
        return cls(process, configuration.session, in_flight)

    async def configure(self, configuration: ChildConfiguration) -> None:
        """Send the configuration through a pipe: a command line can be read by every user of the machine."""
        pipe = self._process.stdin
        if pipe is not None:
            # uvloop raises a RuntimeError for a pipe that is closed, since the process has ended.
            with contextlib.suppress(ConnectionError, RuntimeError):
                pipe.write(msgspec.json.encode(configuration))
                await pipe.drain()
                pipe.close()

    def attempts(self) -> list[InFlight]:
        """Return the attempts that its session still waits for."""
        return [attempt for attempt in self.in_flight.attempts() if not attempt.is_abandoned]

    def stop(self) -> None:
        """Ask it to end within the grace."""
        self._end(STOP)

    def stop_now(self) -> None:
        """Ask it to end at once."""
        self._end(STOP_NOW)

    def retire(self) -> None:
        """Ask it to finish what runs, and to fetch nothing more."""
        self._end(RETIRE)
        self.retired.set()

    def kill(self, overdue: frozenset[str] = frozenset()) -> None:
        """End it, whatever it does."""
        self.overdue |= overdue
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        self.is_ending = True
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Wait for its end; return its exit status."""
        status = await self._process.wait()
        self.had_started = frozenset((attempt.job_id, attempt.attempt) for attempt in self.attempts())
        self.had_ended = self.in_flight.ended()
        self.is_failed_start = status == START_FAILED_STATUS and not self.in_flight.pulse()
        return status

    def outcome_of(self, job: Job, timeout: float, now: int) -> Outcome:
        """Return the outcome of a job that it held when it ended; `timeout` is the task's, in seconds."""
        attempt = job.id, job.attempt
        # A blocked event loop makes every job on it late: a late job is to blame only if it ran alone.
        if job.id in self.overdue or (self.is_blocked and self.had_started == {attempt}):
            return overran(job, timeout, now)
        if self.is_ending and not self.is_blocked:
            # The supervisor ended it: no job is to blame.
            return Interrupted(started=attempt in self.had_started)
        # A job whose attempt has ended may have left something behind that ended the process.
        return Crashed(started=attempt in self.had_started or attempt in self.had_ended)
