"""The main program of a child: one worker process under a supervisor, which keeps its session alive."""

import asyncio
import contextlib
import io
import sys
from typing import NoReturn

import msgspec
import structlog

from reprieve.clock import ticks
from reprieve.errors import LifespanFailed, ReprieveError
from reprieve.frames import count_as_own
from reprieve.worker.child_process import RETIRE, STOP, STOP_NOW, ChildConfiguration
from reprieve.worker.forks import detach_forks
from reprieve.worker.in_flight import InFlightTable
from reprieve.worker.isolation import Processes
from reprieve.worker.lifespans import START_FAILED_STATUS, Lifespans
from reprieve.worker.logs import attach, configure
from reprieve.worker.loop import make_runner
from reprieve.worker.parent_watch import exit_with_parent, leave_signals_to_parent
from reprieve.worker.process_exit import exit_now
from reprieve.worker.target import load, move
from reprieve.worker.worker import Worker

log = structlog.get_logger("reprieve")

CLOSE_SECONDS = 0.5
"""Seconds that a child waits for its store to close."""


def main() -> NoReturn:
    """Work until told to stop, then end at once: a thread that never returns must not keep the process alive."""
    leave_signals_to_parent()
    configuration = msgspec.json.decode(sys.stdin.buffer.read(), type=ChildConfiguration)
    exit_with_parent(configuration.parent, configuration.parent_pipe)
    detach_forks()
    configure(configuration.logs)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What tasks print is shown at once, also where standard output is not a terminal.
        sys.stdout.reconfigure(line_buffering=True)
    session = configuration.session
    # Never closed: that would cancel the attempts, and the in-flight table must say what ran when the process ended.
    runner = make_runner()
    try:
        runner.run(_serve(configuration))
    except LifespanFailed:
        # Logged already; the supervisor decides what follows.
        exit_now(START_FAILED_STATUS)
    except ReprieveError as error:
        log.error("child cannot work", session=session, errorCode=error.code, errorReason=str(error))  # noqa: TRY400 - the message is enough
    except BaseException:
        # `sys.exit` in an asyncio task of the application ends the event loop, for example.
        log.exception("child failed", session=session)
    exit_now(1)


async def _serve(configuration: ChildConfiguration) -> NoReturn:
    app = load(configuration.target)
    move(app, configuration.url)
    app.workers += 1
    count_as_own([configuration.target.partition(":")[0], *(task.module for task in app.registry)])
    attach()
    processes = Processes(target=configuration.target, url=configuration.url, logs=configuration.logs)
    worker = Worker(
        app,
        configuration.session,
        queues=configuration.queues,
        slots=configuration.slots,
        isolation=processes,
        in_flight=InFlightTable(configuration.slots, configuration.in_flight_file),
    )
    shutdown = Shutdown(worker, configuration.grace)
    worker.parts.attempts.before_end = shutdown.exit_if_cancelled
    lifespans = Lifespans()
    try:
        await lifespans.start(app.lifespan_context())
    except asyncio.CancelledError:
        # Told to end during the start.
        exit_now(0)
    shutdown.is_started = True
    # A lifespan may have set `logging` up.
    attach()
    try:
        await worker.run()
    except asyncio.CancelledError:
        shutdown.exit_if_cancelled()
        raise
    finally:
        closing = asyncio.create_task(processes.close(shutdown.seconds_left()))
        # Lifespans are left by the task that entered them.
        await lifespans.stop(shutdown.seconds_left())
        await closing
        # A store that is away may not close in time; the process ends anyway.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await app.store.close()
    # A regular end would wait for threads that attempts have left behind.
    exit_now(0)


class Shutdown:
    """How a child is told to end, and how much time it has."""

    def __init__(self, worker: Worker, grace: float) -> None:
        """Handle the supervisor's signals, in the task that serves."""
        self.is_started = False
        """Whether the lifespans have been entered: a process that is still entering them ends at once."""
        self._worker = worker
        self._grace = grace
        self._end_at: float | None = None
        self._serving = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(STOP, self._stop)
        self._loop.add_signal_handler(STOP_NOW, self._stop_now)
        self._loop.add_signal_handler(RETIRE, self._retire)

    def seconds_left(self) -> float:
        """Return how many seconds of the grace are left."""
        return self._grace if self._end_at is None else max(0.0, self._end_at - ticks())

    def exit_if_cancelled(self) -> None:
        """End the process at once if the code of an application has cancelled the task that serves."""
        if self._serving is not None and self._serving.cancelling():
            log.error("worker cancelled by a job", session=self._worker.session)
            exit_now(1)

    def _stop(self) -> None:
        self._end_at = ticks() + self._grace
        self._worker.stop()
        self._loop.call_later(self._grace, self._worker.stop_now)
        self._cancel_start()

    def _stop_now(self) -> None:
        self._end_at = ticks()
        self._worker.stop_now()
        self._cancel_start()

    def _retire(self) -> None:
        self._worker.stop()
        self._cancel_start()

    def _cancel_start(self) -> None:
        if not self.is_started and self._serving is not None:
            self._serving.cancel()


if __name__ == "__main__":
    main()
