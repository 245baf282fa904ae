"""Stops in good order: what runs may finish, what does not run goes back, and nothing runs twice."""

import os
import signal

from reprieve.clock import ticks
from reprieve.core.job import Job
from tests.flows.fleet import Stage, calls, flow
from tests.flows.workload import doze, nap, stay, toil


@flow
async def test_a_worker_that_is_told_to_stop_finishes_what_runs_and_gives_the_rest_back(stage: Stage) -> None:
    tree = stage.hire(slots=2)
    await stage.succeeded(*await stage.enqueue(*calls(nap, 60)))
    stage.release("now")
    both = await stage.enqueue(*calls(stay, 2, stage.mark("end")), *calls(stay, 20, stage.mark("now")))
    begun, fetched = both[:2], both[2:]
    await stage.running(*begun)

    async def is_fetched() -> bool:
        return any(job.state == "running" for job in await stage.jobs(fetched))

    await stage.until(is_fetched, "the child has fetched what it has no slot for", every=0)
    told = ticks()
    tree.send(signal.SIGTERM)

    async def is_back() -> bool:
        return {job.state for job in await stage.jobs(fetched)} == {"waiting"}

    await stage.until(is_back, "what was fetched is back")
    # Without the signal they would be back after a second as well.
    stage.figure("fetched jobs back after SIGTERM", ticks() - told, at_most=0.9)
    stage.hire()
    await stage.succeeded(*fetched)
    assert tree.status() is None
    stage.release("end")
    after = await stage.succeeded(*begun)
    await stage.until(lambda: tree.status() is not None, "the worker has stopped")
    assert tree.status() == 0
    assert [(job.attempt, job.charged, job.crashes) for job in after] == [(1, 0, 0)] * 2
    assert len(stage.began(*both)) == len(both)


@flow
async def test_what_outlasts_the_grace_goes_back_uncharged(stage: Stage) -> None:
    tree = stage.hire(grace=0.5)
    jobs = await stage.enqueue(stay.call(stage.mark("end")), doze.call(60.0), toil.call(60.0))
    await stage.running(*jobs)
    tree.send(signal.SIGTERM)
    await stage.until(lambda: tree.status() is not None, "the worker has stopped")
    assert tree.status() == 0
    assert [_facts(job) for job in await stage.jobs(jobs)] == [("waiting", 0, 0)] * 3
    stage.release("end")
    stage.hire()
    await stage.running(*jobs, attempt=2)


@flow
async def test_a_worker_that_is_told_twice_stops_at_once(stage: Stage) -> None:
    tree = stage.hire(grace=60.0)
    jobs = await stage.enqueue(stay.call(stage.mark("end")), doze.call(60.0), toil.call(60.0))
    await stage.running(*jobs)
    tree.send(signal.SIGTERM)
    await stage.until(lambda: tree.said("worker stopping"), "the worker was told once")
    told = ticks()
    tree.send(signal.SIGTERM)
    await stage.until(lambda: tree.status() is not None, "the worker has stopped")
    stage.figure("stopped after the second signal", ticks() - told)
    assert tree.status() == 0
    assert [_facts(job) for job in await stage.jobs(jobs)] == [("waiting", 0, 0)] * 3


@flow
async def test_a_child_that_hears_both_signals_late_stops_at_once(stage: Stage) -> None:
    tree = stage.hire(grace=60.0)
    job = await stage.enqueue_one(stay.call(stage.mark("end")))
    (begun,) = await stage.running(job)
    await stage.freeze(lambda number: os.kill(begun.pid, number))
    tree.send(signal.SIGTERM)
    await stage.until(lambda: tree.said("worker stopping"), "the worker was told once")
    tree.send(signal.SIGTERM)
    await stage.until(lambda: tree.said("worker stopping")[1:], "the worker was told twice")
    os.kill(begun.pid, signal.SIGCONT)
    await stage.until(lambda: tree.status() is not None, "the worker has stopped")
    assert tree.status() == 0
    assert _facts(await stage.job(job)) == ("waiting", 0, 0)


def _facts(job: Job) -> tuple[str, int, int]:
    return job.state, job.charged, job.crashes
