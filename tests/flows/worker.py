"""A worker: `python -m tests.flows.worker plan` runs a supervisor and its children as the plan, in JSON, says."""

import sys

import msgspec

from reprieve.worker import logs
from reprieve.worker.loop import run
from reprieve.worker.plan import Plan
from reprieve.worker.supervisor import Supervisor
from reprieve.worker.target import load


async def work(plan: Plan) -> None:
    place = load(plan.target)
    await Supervisor(place, plan).run()
    await place.store.close()


if __name__ == "__main__":
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    logs.configure(plan.logs)
    run(work(plan))
