"""The main program of an isolated process: makes one attempt after the other, as it is told through a socket."""

import asyncio
import inspect
import os
import signal
import socket
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, NoReturn, Protocol

import msgspec
import structlog

from reprieve.clock import SystemClock
from reprieve.context import Running
from reprieve.core.job import Job
from reprieve.core.outcome import Outcome, undecodable
from reprieve.declaration import Declaration
from reprieve.errors import AppImportFailed, AppNotFound, EnqueueDuringImport, LifespanFailed
from reprieve.frames import count_as_own
from reprieve.worker import logs
from reprieve.worker.forks import detach_forks
from reprieve.worker.isolation import RETIRE_TIMEOUT_SECONDS, Order, Report, Start
from reprieve.worker.lifespans import Lifespans
from reprieve.worker.parent_watch import exit_with_parent, leave_signals_to_parent
from reprieve.worker.process_exit import exit_now
from reprieve.worker.runner import Runner, failed_by
from reprieve.worker.target import App, import_application, load, move

log = structlog.get_logger("reprieve")


class Declared(Protocol):
    """A task, as it is found in its module."""

    declaration: Declaration
    app: App


def main() -> None:
    """Serve orders until the other end of the socket is closed."""
    leave_signals_to_parent()
    # systemd sends it to every process of a service. It is handled and not ignored: the programs that a task starts do
    # not inherit that, and can be ended with it.
    signal.signal(signal.SIGTERM, lambda *_: None)
    connection = socket.socket(fileno=int(sys.argv[1]))
    # Neither a program that a task starts nor a fork of this process may hold our end of the socket, or write to it.
    connection.set_inheritable(False)
    os.register_at_fork(after_in_child=partial(_disconnect, connection.fileno()))
    with connection.makefile("rb") as orders:
        first = orders.readline()
        if not first:
            # The worker is gone already.
            return
        start = msgspec.json.decode(first, type=Start)
        sys.path[:] = start.path
        exit_with_parent(start.parent)
        detach_forks()
        if start.logs is not None:
            logs.configure(start.logs)
        _run(AttemptServer(connection, start).serve(orders))


def _run(serving: Coroutine[Any, Any, None]) -> NoReturn:
    """Run everything in one event loop: what the lifespans open belongs to the loop that it was opened in."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    status = 1
    try:
        loop.run_until_complete(serving)
        status = 0
    except BaseException:
        # `sys.exit` in an asyncio task of the application ends the event loop, for example.
        log.exception("isolated process failed")
    exit_now(status)


class AttemptServer:
    """Makes attempts of the tasks of one or several apps."""

    def __init__(self, connection: socket.socket, start: Start) -> None:
        """Load nothing yet: an error while the app is loaded is reported as the outcome of an attempt."""
        self._connection = connection
        # A task may report from several threads, and a long report is sent in pieces. A fork waits for the end of one:
        # otherwise its copy of the lock would stay locked.
        self._lock = threading.Lock()
        os.register_at_fork(
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._lock.release
        )
        self._start = start
        self._app: App | None = None
        self._entered: dict[int, Lifespans] = {}
        """The lifespans that were entered, by the `id()` of their app."""

    async def serve(self, orders: BinaryIO) -> None:
        """Make one attempt after the other, until the worker closes the socket; then leave the lifespans."""
        decode = msgspec.json.Decoder(Order).decode
        # Orders are read in a thread, since reports are written to the same socket from any thread.
        with ThreadPoolExecutor(1, thread_name_prefix="reprieve-orders") as reader:
            loop = asyncio.get_running_loop()
            while line := await loop.run_in_executor(reader, orders.readline):
                order = decode(line)
                self.report(Report(is_accepted=True))
                outcome = await self._make(order)
                if (serving := asyncio.current_task()) is not None and serving.cancelling():
                    # In a worker that runs many jobs, this attempt would have ended them all.
                    log.error("worker cancelled by a job", session=order.job.session)
                    exit_now(1)
                self.report(Report(outcome=outcome))
        for lifespans in reversed(self._entered.values()):
            # The worker kills this process when its time is up.
            await lifespans.stop(RETIRE_TIMEOUT_SECONDS)

    def report(self, report: Report) -> None:
        """Send a report to the worker, from any thread."""
        with self._lock:
            self._connection.sendall(msgspec.json.encode(report) + b"\n")

    async def _make(self, order: Order) -> Outcome:
        """Make one attempt, and return its outcome."""
        try:
            app, declaration = self._find(order)
        except AppImportFailed as error:
            if not isinstance(error.__cause__, ImportError):
                # Classified by its cause: a server that the import needs, for example, may be back at the next attempt.
                return _failed(error.__cause__ or error, order)
            return undecodable(f"{order.job.task} cannot be loaded: {error}")
        except (AttributeError, AppNotFound, EnqueueDuringImport) as error:
            return undecodable(f"{order.job.task} cannot be found as {order.name} in {order.module}: {error}")
        except BaseException as error:  # noqa: BLE001 - an exit ends the attempt, as in a worker, and not the process
            return _failed(error, order)
        try:
            await self._enter(app)
        except BaseException as error:  # noqa: BLE001 - as above
            return _failed(error, order)
        # In an asyncio task, and so in a context, of its own: context variables end with the attempt.
        return await asyncio.create_task(self._attempt(order, app, declaration))

    async def _enter(self, app: App) -> None:
        """Enter the lifespans of an app, once in this process; after a failure, the next order tries again."""
        if id(app) not in self._entered:
            lifespans = Lifespans()
            await lifespans.start(app.lifespan_context())
            logs.attach()
            self._entered[id(app)] = lifespans

    async def _attempt(self, order: Order, app: App, declaration: Declaration) -> Outcome:
        def note(_: Job, data: bytes) -> None:
            self.report(Report(progress=data))

        runner = Runner(
            app.registry,
            # It only reads dates in responses of dependencies; the store need not be opened for that.
            SystemClock(),
            middleware=app.middleware,
            max_result_bytes=app.settings.largest_payload,
            threads=1,
        )
        self.report(Report(is_begun=True))
        try:
            return await runner.run_here(declaration, Running(order.job, note, app.settings.largest_payload))
        except BaseException as error:  # noqa: BLE001 - as above; outside of its own task an exit would end the loop
            return _failed(error, order)
        finally:
            runner.close()

    def _find(self, order: Order) -> tuple[App, Declaration]:
        """Return the app of a task, on the worker's store, and the task's declaration."""
        if self._start.target:
            if self._app is None:
                self._app = self._on_worker_store(load(self._start.target))
            declaration = self._app.registry.find(order.job.task)
            if declaration is not None:
                return self._app, declaration
        for task in _tasks_of(order):
            if task.declaration.name == order.job.task:
                return self._on_worker_store(task.app), task.declaration
        message = f"no task there is named {order.job.task!r}"
        raise AttributeError(message)

    def _on_worker_store(self, app: App) -> App:
        if self._start.url:
            move(app, self._start.url)
        app.workers = 1
        count_as_own([self._start.target.partition(":")[0], *(task.module for task in app.registry)])
        logs.attach()
        return app


def _failed(error: BaseException, order: Order) -> Outcome:
    if isinstance(error, LifespanFailed) and error.__cause__ is not None:
        error = error.__cause__
    return failed_by(error, order.job)


def _disconnect(file: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, file, inheritable=False)
    os.close(nothing)


def _tasks_of(order: Order) -> Iterator[Declared]:
    """Yield the tasks of a module: first the one under the function's own name, which need not be the task's name."""
    module = import_application(order.module)
    named: object = module
    for name in order.name.split("."):
        named = getattr(named, name, None)
    for thing in (named, *vars(module).values()):
        # Read statically: a module may hold objects that have every attribute, or that raise when asked for one.
        if isinstance(inspect.getattr_static(thing, "declaration", None), Declaration):
            yield thing


if __name__ == "__main__":
    main()
