"""A worker: `python -m tests.flows.worker plan` runs a supervisor and its children as the plan, in JSON, says.

Whoever started it holds the other end of its standard input: when they are gone, however that came, all of it ends.
"""

import os
import signal
import sys
import threading

import msgspec

from reprieve.worker import logs
from reprieve.worker.loop import run
from reprieve.worker.plan import Plan
from reprieve.worker.supervisor import Supervisor
from reprieve.worker.target import load


def end_with_the_test() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


async def work(plan: Plan) -> None:
    place = load(plan.target)
    await Supervisor(place, plan).run()
    await place.store.close()


if __name__ == "__main__":
    threading.Thread(target=end_with_the_test, daemon=True).start()
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    logs.configure(plan.logs)
    run(work(plan))
