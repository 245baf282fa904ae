"""What runs inside an isolated process: one attempt after the other, told through a socket."""

import asyncio
import importlib
import signal
import socket
import sys
from functools import reduce
from typing import Protocol

import msgspec

from reprieve.context import Running
from reprieve.core.job import Job
from reprieve.core.outcome import Outcome, undecodable
from reprieve.declaration import Declaration
from reprieve.worker.isolation import Order, Processes, Report, Start
from reprieve.worker.lifeline import die_with
from reprieve.worker.runner import Runner
from reprieve.worker.worker import Workplace


class Declared(Protocol):
    """A task, as it is found in its module."""

    declaration: Declaration
    app: Workplace


def main() -> None:
    """Serve orders until the other end of the socket is closed."""
    start = msgspec.json.decode(sys.argv[1], type=Start)
    sys.path[:] = start.path
    # Whoever presses Ctrl-C means the supervisor, which tells everybody in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=start.file)
    die_with(start.parent)
    decode = msgspec.json.Decoder(Order).decode
    with connection.makefile("rb") as orders:
        for line in orders:
            outcome = asyncio.run(_run(decode(line), connection))
            _answer(connection, Report(outcome=outcome))


async def _run(order: Order, connection: socket.socket) -> Outcome:
    def note(_: Job, data: bytes) -> None:
        _answer(connection, Report(progress=data))

    try:
        task: Declared = reduce(getattr, order.name.split("."), importlib.import_module(order.module))
        place = task.app
    except (ImportError, AttributeError) as error:
        return undecodable(f"{order.job.task} cannot be found as {order.name} in {order.module}: {error}")
    runner = Runner(
        place.registry,
        place.clock,
        middleware=place.middleware,
        largest_result=place.settings.largest_payload,
        threads=1,
        isolation=Processes(),
    )
    return await runner.run_here(task.declaration, Running(order.job, note))


def _answer(connection: socket.socket, report: Report) -> None:
    connection.sendall(msgspec.json.encode(report) + b"\n")


if __name__ == "__main__":
    main()
