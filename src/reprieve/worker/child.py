"""A child: one worker process under a supervisor, which keeps its session alive. Both of its sides are here."""

import asyncio
import contextlib
import io
import os
import signal
import sys
from typing import NoReturn

import msgspec
import structlog

from reprieve.clock import ticks
from reprieve.core.record import Record
from reprieve.errors import LifespanFailed, ReprieveError
from reprieve.frames import count_as_own
from reprieve.worker.board import Board
from reprieve.worker.isolation import Processes
from reprieve.worker.lifeline import die_with
from reprieve.worker.logs import Logs, attach, configure
from reprieve.worker.loop import run
from reprieve.worker.opening import START_FAILED_STATUS, Opening
from reprieve.worker.target import load, move
from reprieve.worker.worker import Worker

log = structlog.get_logger("reprieve")

STOP, STOP_NOW, RETIRE = signal.SIGTERM, signal.SIGUSR2, signal.SIGUSR1
"""Tell a child to end: when its jobs have, but within the grace; at once; or when its jobs have, however long it takes.
Three kinds, since two of a kind that come close together are heard as one."""


class Duty(Record):
    """What a child is told when it starts."""

    target: str
    session: str
    url: str
    queues: tuple[str, ...]
    slots: int
    grace: float
    parent: int
    board: int
    lifeline: int
    logs: Logs


class Child:
    """A child, as its supervisor sees it."""

    def __init__(self, process: asyncio.subprocess.Process, session: str, board: Board) -> None:
        """Take the process, its session, and the board that it writes on."""
        self.process = process
        self.session = session
        self.board = board
        self.started = ticks()
        self.is_ending = False
        """Whether it ends by our will."""
        self.is_failed_start = False
        """Whether the lifespans of its app did not start."""
        self.is_blocked = False
        """Whether we ended it because its loop did not turn."""
        self.overdue: frozenset[str] = frozenset()
        """Jobs that we ended it for."""
        self.retired = asyncio.Event()

    async def tell(self, duty: bytes) -> None:
        """Tell it what to do; through a pipe, since everybody may read a command line."""
        pipe = self.process.stdin
        if pipe is not None:
            with contextlib.suppress(ConnectionError):
                pipe.write(duty)
                await pipe.drain()
                pipe.close()

    def stop(self) -> None:
        """Let it end in good order."""
        self._end(STOP)

    def stop_now(self) -> None:
        """Let it end at once, in such order as that allows."""
        self._end(STOP_NOW)

    def retire(self) -> None:
        """Let it finish what it has, and take nothing more."""
        self._end(RETIRE)
        self.retired.set()

    def kill(self, overdue: frozenset[str] = frozenset()) -> None:
        """End it, whatever it does."""
        self.overdue |= overdue
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        self.is_ending = True
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


def main() -> NoReturn:
    """Work until told to stop, then end at once: a thread that never returns must not keep the process."""
    # Whoever presses Ctrl-C means the supervisor, which tells everybody in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    duty = msgspec.json.decode(sys.stdin.buffer.read(), type=Duty)
    die_with(duty.parent, duty.lifeline)
    configure(duty.logs)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What tasks print is seen when they print it, also where standard output is no terminal.
        sys.stdout.reconfigure(line_buffering=True)
    try:
        run(_serve(duty))
    except LifespanFailed:
        # It has been logged, and the supervisor says what follows.
        _leave(START_FAILED_STATUS)
    except ReprieveError as error:
        log.error("child cannot work", session=duty.session, errorCode=error.code, errorReason=str(error))  # noqa: TRY400 - it says all
    except Exception:
        log.exception("child failed", session=duty.session)
    _leave(1)


async def _serve(duty: Duty) -> NoReturn:
    place = load(duty.target)
    move(place, duty.url)
    count_as_own([duty.target.partition(":")[0], *(task.module for task in place.registry)])
    attach()
    processes = Processes(target=duty.target, url=duty.url, logs=duty.logs)
    worker = Worker(
        place,
        duty.session,
        queues=duty.queues,
        slots=duty.slots,
        isolation=processes,
        board=Board(duty.slots, duty.board),
    )
    end = End(worker, duty.grace)
    opening = Opening()
    try:
        await opening.start(place.lifespan_context())
    except asyncio.CancelledError:
        # Told to end before it had begun.
        _leave(0)
    end.is_started = True
    # A lifespan may have set `logging` up.
    attach()
    try:
        await worker.run()
    finally:
        closing = asyncio.create_task(processes.close(end.left()))
        # Lifespans are left by the task that has entered them.
        await opening.stop(end.left())
        await closing
        await place.store.close()
    # The loop would wait for threads that its jobs have left behind.
    _leave(0)


class End:
    """How a child is told to end, and how much time it has."""

    def __init__(self, worker: Worker, grace: float) -> None:
        """Listen to the supervisor's signals, in the task that serves."""
        self.is_started = False
        """Whether the lifespans have been entered: a process that still enters them ends at once."""
        self._worker = worker
        self._grace = grace
        self._by: float | None = None
        self._serving = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(STOP, self._stop)
        self._loop.add_signal_handler(STOP_NOW, self._stop_now)
        self._loop.add_signal_handler(RETIRE, self._retire)

    def left(self) -> float:
        """Return how many seconds of the grace are left."""
        return self._grace if self._by is None else max(0.0, self._by - ticks())

    def _stop(self) -> None:
        self._by = ticks() + self._grace
        self._worker.stop()
        self._loop.call_later(self._grace, self._worker.stop_now)
        self._give_up_start()

    def _stop_now(self) -> None:
        self._by = ticks()
        self._worker.stop_now()
        self._give_up_start()

    def _retire(self) -> None:
        self._worker.stop()
        self._give_up_start()

    def _give_up_start(self) -> None:
        if not self.is_started and self._serving is not None:
            self._serving.cancel()


def _leave(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
