"""Zombies: a worker that was silent for longer than its lease wakes up and finds that other workers have its jobs."""

import signal

from reprieve.core.job import Job
from tests.flows.fleet import PATIENCE, Stage, Tree, calls, flow
from tests.flows.workload import first_stay, nap, stay


async def lose(stage: Stage, *jobs: str) -> Tree:
    """Freeze the worker that runs some jobs until another worker runs them; answer the frozen one."""
    zombie = stage.hire()
    await stage.running(*jobs)
    await stage.freeze(zombie.send_all)
    stage.hire()
    await stage.running(*jobs, attempt=2, within=stage.terms.lease + PATIENCE)
    return zombie


async def wake(stage: Stage, zombie: Tree) -> None:
    """Let a frozen worker go on, until it has noticed."""
    before = set(zombie.children())
    zombie.send_all(signal.SIGCONT)
    await stage.until(
        lambda: zombie.said("late result refused") or zombie.said("session lost"), "a late result was refused"
    )
    await stage.until(lambda: set(zombie.children()) - before, "the worker has a child that may work")


def check(stage: Stage, job: Job) -> None:
    assert (job.state, job.attempt, job.charged, job.crashes) == ("succeeded", 2, 0, 1)
    assert [line.attempt for line in stage.began(job.id)] == [1, 2]


@flow
async def test_neither_a_late_success_nor_a_late_failure_counts(stage: Stage) -> None:
    jobs = await stage.enqueue(first_stay.call(stage.mark("end"), ""), first_stay.call(stage.mark("end"), "late"))
    zombie = await lose(stage, *jobs)
    after = await stage.succeeded(*jobs)
    stage.release("end")
    await wake(stage, zombie)
    await stage.succeeded(*await stage.enqueue(nap.call()))
    assert await stage.jobs(jobs) == after
    for job in after:
        check(stage, job)


@flow
async def test_a_late_failure_does_not_disturb_the_run_that_is_on(stage: Stage) -> None:
    job = await stage.enqueue_one(first_stay.call(stage.mark("end"), "late", stage.mark("end of the second")))
    zombie = await lose(stage, job)
    during = await stage.job(job)
    stage.release("end")
    await wake(stage, zombie)
    assert await stage.job(job) == during
    stage.release("end of the second")
    (after,) = await stage.succeeded(job)
    check(stage, after)


@flow
async def test_workers_that_were_all_frozen_do_not_bury_each_other(stage: Stage) -> None:
    trees = [stage.hire(slots=1) for _ in range(3)]
    jobs = await stage.enqueue(*calls(stay, 3, stage.mark("end")))
    await stage.running(*jobs)
    await stage.let_the_dead_be_buried()
    for tree in trees:
        await stage.freeze(tree.send_all)
    await stage.let_pass(stage.terms.lease + stage.terms.heartbeat)
    for tree in trees:
        tree.send_all(signal.SIGCONT)
    await stage.let_the_dead_be_buried()
    stage.release("end")
    after = await stage.succeeded(*jobs)
    assert [(job.attempt, job.charged, job.crashes) for job in after] == [(1, 0, 0)] * 3
