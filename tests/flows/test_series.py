"""Series of real workers: the numbers add up to the jobs that were run."""

import os
import signal
from collections import Counter

from reprieve.stores.protocol import Retention, SeriesRequest
from tests.flows.fleet import Stage, calls, flow
from tests.flows.workload import fail_once, nap, stay

HOUR_MS = 3_600_000


async def counted(stage: Stage, task: str) -> Counter[str]:
    """Return the sums of what was counted of a task, with those of both histograms."""
    store, now = stage.app.store, stage.app.clock.now()
    while not (await store.prune(Retention(now=now))).is_all:
        pass
    request = SeriesRequest(subject="task", names=(task,), since_at=now - HOUR_MS, until_at=now + HOUR_MS)
    sums: Counter[str] = Counter()
    for point in (await store.series(request, now))[0].points:
        sums.update(point.counts)
        sums.update({"waits": sum(point.waits), "runs": sum(point.runs)})
    return sums


@flow
async def test_numbers_of_a_worker_that_stops_add_up_to_its_jobs(stage: Stage) -> None:
    tree = stage.hire(processes=2)
    naps = await stage.enqueue(*calls(nap, 200))
    failing = await stage.enqueue(*calls(fail_once, 3, 0.1))
    await stage.succeeded(*naps, *failing)
    tree.send(signal.SIGTERM)
    await stage.until(lambda: tree.status() is not None, "the worker has stopped")
    found = await counted(stage, nap.name)
    assert found["enqueued"] == found["started"] == found["succeeded_1"] == found["waits"] == found["runs"] == 200
    found = await counted(stage, fail_once.name)
    assert (found["enqueued"], found["started"], found["runs"]) == (3, 6, 6)
    assert (found["succeeded_1"], found["succeeded_2"], found["retried"]) == (0, 3, 3)


@flow
async def test_an_idle_or_busy_worker_hands_over_what_it_has_counted(stage: Stage) -> None:
    stage.hire(slots=2)
    await stage.succeeded(*await stage.enqueue(*calls(nap, 5)))

    async def is_idle_counted() -> bool:
        return (await counted(stage, nap.name))["succeeded_1"] == 5

    await stage.until(is_idle_counted, "the jobs of an idle worker are counted", every=0.2)
    busy = await stage.enqueue(*calls(stay, 2, stage.mark("end")))
    await stage.running(*busy)

    async def is_busy_counted() -> bool:
        return (await counted(stage, stay.name))["started"] == 2

    await stage.until(is_busy_counted, "the jobs of a worker without a free slot are counted", every=0.2)
    stage.release("end")
    await stage.succeeded(*busy)


@flow
async def test_a_killed_worker_loses_its_last_numbers_and_counts_nothing_twice(stage: Stage) -> None:
    stage.hire()
    await stage.succeeded(*await stage.enqueue(*calls(nap, 50)))

    async def is_counted() -> bool:
        return (await counted(stage, nap.name))["succeeded_1"] == 50

    await stage.until(is_counted, "the first jobs are counted", every=0.2)
    held = await stage.enqueue(*calls(stay, 4, stage.mark("end")))
    (child,) = {line.pid for line in await stage.running(*held)}
    os.kill(child, signal.SIGKILL)
    stage.release("end")
    await stage.succeeded(*held)

    async def is_recovered() -> bool:
        return (await counted(stage, stay.name))["succeeded_2"] == 4

    await stage.until(is_recovered, "the second attempts are counted", every=0.2)
    found = await counted(stage, stay.name)
    assert (found["enqueued"], found["recovered"], found["succeeded_1"]) == (4, 4, 0)
    assert found["started"] in range(4, 9), "the starts of the killed child may be lost, and no others"
    assert (await counted(stage, nap.name))["succeeded_1"] == 50
