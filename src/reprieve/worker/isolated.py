"""What runs inside an isolated process: one attempt after the other, told through a socket."""

import asyncio
import contextlib
import inspect
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, Protocol

import msgspec

from reprieve.clock import SystemClock
from reprieve.context import Running
from reprieve.core.classify import judge
from reprieve.core.job import Job
from reprieve.core.outcome import Failed, Outcome, undecodable
from reprieve.declaration import Declaration
from reprieve.errors import AppImportFailed, AppNotFound, EnqueueDuringImport, LifespanFailed
from reprieve.frames import count_as_own
from reprieve.worker import logs
from reprieve.worker.isolation import RETIRE_WITHIN_SECONDS, Order, Processes, Report, Start
from reprieve.worker.lifeline import die_with
from reprieve.worker.opening import Opening
from reprieve.worker.runner import Runner
from reprieve.worker.target import App, import_application, load, move
from reprieve.worker.tracebacks import failure_of


class Declared(Protocol):
    """A task, as it is found in its module."""

    declaration: Declaration
    app: App


def main() -> None:
    """Serve orders until the other end of the socket is closed."""
    # Whoever presses Ctrl-C means the supervisor, which tells everybody in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    # Nobody else may hold our end, or speak for us: neither a program that a task starts nor a fork of this process.
    connection.set_inheritable(False)
    os.register_at_fork(after_in_child=partial(_let_go, connection.fileno()))
    with connection.makefile("rb") as orders:
        first = orders.readline()
        if not first:
            # The worker that started us is gone already.
            return
        start = msgspec.json.decode(first, type=Start)
        sys.path[:] = start.path
        die_with(start.parent)
        if start.logs is not None:
            logs.configure(start.logs)
        _run(Bench(connection, start).serve(orders))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    # A thread that an attempt has left behind must not keep the process.
    os._exit(0)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    """Run everything in one event loop: resources of the lifespans live in the loop that they were opened in."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(serving)
    while not task.done():
        # An exit in a task that an attempt has started stops the loop, and is an outcome like any other.
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_until_complete(task)


class Bench:
    """Where attempts are made, with the apps that they belong to."""

    def __init__(self, connection: socket.socket, start: Start) -> None:
        """Load nothing yet: what breaks while the app is loaded is told to the worker that gave the order."""
        self._connection = connection
        self._start = start
        self._app: App | None = None
        self._opened: dict[int, Opening] = {}
        """The lifespans that were entered, by the identity of their app."""

    async def serve(self, orders: BinaryIO) -> None:
        """Make one attempt after the other, until there are no more orders; then leave the lifespans."""
        decode = msgspec.json.Decoder(Order).decode
        # Orders are read in a thread, since reports are written to the same socket from any thread.
        with ThreadPoolExecutor(1, thread_name_prefix="reprieve-orders") as reader:
            loop = asyncio.get_running_loop()
            while line := await loop.run_in_executor(reader, orders.readline):
                order = decode(line)
                self.answer(Report(is_accepted=True))
                self.answer(Report(outcome=await self._make(order)))
        for opening in reversed(self._opened.values()):
            # The worker ends this process when its time is up.
            await opening.stop(RETIRE_WITHIN_SECONDS)

    def answer(self, report: Report) -> None:
        """Tell the worker something."""
        self._connection.sendall(msgspec.json.encode(report) + b"\n")

    async def _make(self, order: Order) -> Outcome:
        """Make one attempt and say how it ended."""
        try:
            place, declaration = self._find(order)
        except AppImportFailed as error:
            if not isinstance(error.__cause__, ImportError):
                # Judged as what it is: what cannot be reached now, for example, may be there at the next attempt.
                return _failed(error.__cause__ or error, order)
            return undecodable(f"{order.job.task} cannot be loaded: {error}")
        except (AttributeError, AppNotFound, EnqueueDuringImport) as error:
            return undecodable(f"{order.job.task} cannot be found as {order.name} in {order.module}: {error}")
        except BaseException as error:  # noqa: BLE001 - an exit ends the attempt, as in a worker, and not the process
            return _failed(error, order)
        try:
            await self._open(place)
            # In a task, and so in a context, of its own: what an attempt sets there is gone with it.
            return await asyncio.create_task(self._attempt(order, place, declaration))
        except BaseException as error:  # noqa: BLE001 - as above
            return _failed(error, order)

    async def _open(self, app: App) -> None:
        """Enter the lifespans of an app, once in this process; what fails is tried again with the next order."""
        if id(app) not in self._opened:
            opening = Opening()
            await opening.start(app.lifespan_context())
            logs.attach()
            self._opened[id(app)] = opening

    async def _attempt(self, order: Order, place: App, declaration: Declaration) -> Outcome:
        def note(_: Job, data: bytes) -> None:
            self.answer(Report(progress=data))

        runner = Runner(
            place.registry,
            # Only dates in what a dependency answers are read by it, which is nothing that a store need be opened for.
            SystemClock(),
            middleware=place.middleware,
            largest_result=place.settings.largest_payload,
            threads=1,
            isolation=Processes(),
        )
        self.answer(Report(is_begun=True))
        try:
            return await runner.run_here(declaration, Running(order.job, note, place.settings.largest_payload))
        finally:
            runner.close()

    def _find(self, order: Order) -> tuple[App, Declaration]:
        """Return the app of a task, on the worker's store, and what the task was declared with."""
        if self._start.target:
            if self._app is None:
                self._app = self._on_our_store(load(self._start.target))
            declaration = self._app.registry.find(order.job.task)
            if declaration is not None:
                return self._app, declaration
        for task in _tasks_of(order):
            if task.declaration.name == order.job.task:
                return self._on_our_store(task.app), task.declaration
        message = f"no task there is named {order.job.task!r}"
        raise AttributeError(message)

    def _on_our_store(self, app: App) -> App:
        if self._start.url:
            move(app, self._start.url)
        count_as_own([self._start.target.partition(":")[0], *(task.module for task in app.registry)])
        logs.attach()
        return app


def _failed(error: BaseException, order: Order) -> Outcome:
    if isinstance(error, LifespanFailed) and error.__cause__ is not None:
        error = error.__cause__
    failure = failure_of(error, dependency=order.job.dependency)
    return Failed(failure=failure, verdict=judge(failure, ()))


def _let_go(file: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, file, inheritable=False)
    os.close(nothing)


def _tasks_of(order: Order) -> Iterator[Declared]:
    """Go through the tasks of a module: first the one under the function's own name, which need not be the task's."""
    module = import_application(order.module)
    named: object = module
    for name in order.name.split("."):
        named = getattr(named, name, None)
    for thing in (named, *vars(module).values()):
        # Looked at from outside: a module may hold things that answer to every name, or to none at this moment.
        if isinstance(inspect.getattr_static(thing, "declaration", None), Declaration):
            yield thing


if __name__ == "__main__":
    main()
