"""A child: one worker process under a supervisor, which keeps its session alive."""

import asyncio
import os
import signal
import sys

import msgspec
from msgspec.structs import replace

from reprieve.core.record import Record
from reprieve.worker import logs
from reprieve.worker.board import Board
from reprieve.worker.isolation import Processes
from reprieve.worker.lifeline import die_with
from reprieve.worker.loop import run
from reprieve.worker.target import load
from reprieve.worker.worker import Worker

LOST = 3
"""The exit status of a child whose session was declared dead."""


AT_ONCE = signal.SIGUSR2
"""Tells a child to end at once. Not a second SIGTERM: two of a kind that come close together are heard as one."""


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
    logs: logs.Logs


def main() -> None:
    """Work until told to stop, then end at once: a thread that never returns must not keep the process."""
    duty = msgspec.json.decode(sys.argv[1], type=Duty)
    # Whoever presses Ctrl-C means the supervisor, which tells everybody in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(duty.parent, duty.lifeline)
    logs.configure(duty.logs)
    status = run(_serve(duty))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


async def _serve(duty: Duty) -> int:
    place = load(duty.target)
    # What the command line said goes over what the app says.
    place.settings = replace(place.settings, url=duty.url)
    processes = Processes()
    worker = Worker(
        place,
        duty.session,
        queues=duty.queues,
        slots=duty.slots,
        isolation=processes,
        board=Board(duty.slots, duty.board),
    )
    loop = asyncio.get_running_loop()
    signals = 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            worker.stop()
            loop.call_later(duty.grace, worker.stop_now)
        else:
            worker.stop_now()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(AT_ONCE, worker.stop_now)
    await worker.run()
    await processes.close()
    await place.store.close()
    return LOST if worker.is_lost else 0


if __name__ == "__main__":
    main()
