"""A worker: `python -m tests.flows.worker CONFIGURATION` runs a supervisor and its children; the argument is JSON.

The test holds the other end of its standard input: when the test is gone, for whatever reason, all of it ends.
"""

import os
import signal
import sys
import threading

import msgspec

from reprieve.worker import logs
from reprieve.worker.configuration import WorkerConfiguration
from reprieve.worker.loop import run
from reprieve.worker.supervisor import Supervisor
from reprieve.worker.target import load


def end_with_the_test() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


async def work(configuration: WorkerConfiguration) -> None:
    app = load(configuration.target)
    await (await Supervisor.open(app, configuration)).run()


if __name__ == "__main__":
    threading.Thread(target=end_with_the_test, daemon=True).start()
    configuration = msgspec.json.decode(sys.argv[1], type=WorkerConfiguration)
    logs.configure(configuration.logs)
    run(work(configuration))
