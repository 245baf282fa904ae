"""What runs inside an isolated process: one attempt after the other, told through a socket."""

import asyncio
import importlib
import inspect
import os
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial
from typing import Protocol

import msgspec

from reprieve.clock import SystemClock
from reprieve.context import Running
from reprieve.core.classify import judge
from reprieve.core.failure import read
from reprieve.core.job import Job
from reprieve.core.outcome import Failed, Outcome, undecodable
from reprieve.declaration import Declaration
from reprieve.errors import AppNotFound
from reprieve.worker.isolation import Order, Processes, Report, Start
from reprieve.worker.lifeline import die_with
from reprieve.worker.runner import Runner
from reprieve.worker.target import App, load, move
from reprieve.worker.workplace import Workplace


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
    decode = msgspec.json.Decoder(Order).decode
    with connection.makefile("rb") as orders:
        first = orders.readline()
        if not first:
            # Whoever started us is gone already.
            return
        start = msgspec.json.decode(first, type=Start)
        sys.path[:] = start.path
        die_with(start.parent)
        bench = Bench(connection, start)
        for line in orders:
            order = decode(line)
            bench.answer(Report(is_accepted=True))
            bench.answer(Report(outcome=bench.serve(order)))


class Bench:
    """Where attempts are made, with the app that they belong to."""

    def __init__(self, connection: socket.socket, start: Start) -> None:
        """Load nothing yet: what breaks while the app is loaded is told to whoever gave the order."""
        self._connection = connection
        self._start = start
        self._app: Workplace | None = None

    def serve(self, order: Order) -> Outcome:
        """Make one attempt and say how it ended."""
        try:
            return asyncio.run(self._run(order))
        except BaseException as error:  # noqa: BLE001 - an exit ends the attempt, as in a worker, and not the process
            failure = read(error, dependency=order.job.dependency)
            return Failed(failure=failure, verdict=judge(failure, ()))

    def answer(self, report: Report) -> None:
        """Tell the worker something."""
        self._connection.sendall(msgspec.json.encode(report) + b"\n")

    async def _run(self, order: Order) -> Outcome:
        def note(_: Job, data: bytes) -> None:
            self.answer(Report(progress=data))

        try:
            place, declaration = self._find(order)
        except (ImportError, AttributeError, AppNotFound) as error:
            return undecodable(f"{order.job.task} cannot be found as {order.name} in {order.module}: {error}")
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

    def _find(self, order: Order) -> tuple[Workplace, Declaration]:
        """Answer the app of a task, on the worker's store, and what the task was declared with."""
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
        return app


def _let_go(file: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, file, inheritable=False)
    os.close(nothing)


def _tasks_of(order: Order) -> Iterator[Declared]:
    """Go through the tasks of a module: first the one under the function's own name, which need not be the task's."""
    module = importlib.import_module(order.module)
    named: object = module
    for name in order.name.split("."):
        named = getattr(named, name, None)
    for thing in (named, *vars(module).values()):
        # Looked at from outside: a module may hold things that answer to every name, or to none at this moment.
        if isinstance(inspect.getattr_static(thing, "declaration", None), Declaration):
            yield thing


if __name__ == "__main__":
    main()
