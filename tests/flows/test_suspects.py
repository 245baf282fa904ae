"""Suspects: what a job that ends its process does to itself and to others, whichever way it ends it."""

import os
import random
import signal
from itertools import cycle
from pathlib import Path

import pytest

from reprieve.core.decide import MAX_LOST_SESSIONS
from reprieve.core.job import Suspicion
from tests.flows.fleet import ONCE, PATIENCE, Stage, Terms, calls, flow, on_all_terms, play
from tests.flows.ground import Grounds
from tests.flows.workload import ENDS, doze, end_process, nap, stay, toil


@on_all_terms
@pytest.mark.parametrize("how", ENDS)
async def test_a_job_that_ends_its_process_in_any_way_dies_alone(
    how: str, terms: Terms, tmp_path: Path, grounds: Grounds
) -> None:
    async def scene(stage: Stage) -> None:
        tree = stage.hire(slots=8)
        await stage.until(tree.children, "the child is there")
        neighbours = await stage.enqueue(*calls(stay, 3, stage.mark("end")))
        await stage.running(*neighbours)
        offender = await stage.enqueue_one(end_process.call(how, 60.0))
        (dead,) = await stage.ended(offender)
        assert (dead.state, dead.death, dead.crashes, dead.charged) == ("dead", "poison", 3, 0)
        assert [line.attempt for line in stage.began(offender)] == [1, 2, 3]
        stage.release("end")
        after = await stage.succeeded(*neighbours)
        # Each was lost once, with the process that they shared.
        assert [(job.attempt, job.crashes, job.charged) for job in after] == [(2, 1, 0)] * 3
        await stage.succeeded(*await stage.enqueue(*calls(nap, 3)))

    await play(scene, tmp_path, terms, grounds)


@flow
async def test_a_job_that_returns_before_it_ends_its_process_is_a_suspect_too(stage: Stage) -> None:
    tree = stage.hire(slots=8)
    await stage.until(tree.children, "the child is there")
    neighbours = await stage.enqueue(*calls(stay, 3, stage.mark("end")))
    await stage.running(*neighbours)
    offenders = await stage.enqueue(*(end_process.call(how, 0.0) for how in ENDS))
    # What the first leaves behind ends its process. In a process of its own, an attempt that has ended has succeeded.
    await stage.ended(*offenders)
    stage.release("end")
    for job in await stage.succeeded(*neighbours):
        assert (job.charged, job.crashes <= len(ENDS)) == (0, True)
    assert max(len(stage.began(job)) for job in offenders) <= 3


@flow
async def test_jobs_of_workers_that_are_killed_again_and_again_are_suspects_and_no_poison(stage: Stage) -> None:
    jobs = await stage.enqueue(*calls(stay, 3, stage.mark("end")))
    for attempt in range(1, 5):
        tree = stage.hire(slots=4)
        await stage.running(*jobs, attempt=attempt, within=stage.terms.lease + PATIENCE)
        tree.end()
    assert {job.state for job in await stage.jobs(jobs)} == {"running"}
    stage.hire(slots=4)
    stage.release("end")
    after = await stage.succeeded(*jobs, within=stage.terms.lease + PATIENCE)
    assert [(job.attempt, job.crashes, job.charged) for job in after] == [(5, 4, 0)] * 3


@flow
async def test_a_job_that_kills_the_worker_of_its_own_process_dies_in_the_end(stage: Stage) -> None:
    stage.hire(slots=4)
    job = await stage.enqueue_one(stay.call(stage.mark("never")))
    for attempt in range(1, MAX_LOST_SESSIONS + 1):
        begun = (await stage.running(job, attempt=attempt))[-1]
        # From the second attempt on, the job has a process of its own, and its parent is the worker's child.
        os.kill(begun.pid if attempt == 1 else begun.parent, signal.SIGKILL)
    (dead,) = await stage.ended(job)
    assert (dead.death, dead.crashes, dead.suspicion) == ("poison", 10, Suspicion(sessions=10))
    assert dead.cause is not None
    assert dead.cause.reason == "10 workers in a row died while running it"


@pytest.mark.faults
async def test_forty_kills_and_twenty_stops_make_no_job_poison(tmp_path: Path, grounds: Grounds) -> None:
    """39 SIGKILLs and 21 SIGTERMs over three workers in two minutes: none dead, none lost."""
    chance = random.Random(15)
    signals = [signal.SIGKILL] * 39 + [signal.SIGTERM] * 21
    chance.shuffle(signals)

    async def scene(stage: Stage) -> None:
        ways = cycle(("supervisor", "child", "each"))
        trees = [stage.hire(processes=2, slots=4, grace=1.0) for _ in range(3)]
        jobs = []
        for turn, number in enumerate(signals):
            seconds = [chance.choice((0.05, 0.5, 2.0, 4.0)) for _ in range(6)]
            jobs += await stage.enqueue(*(nap.call(some) for some in seconds), doze.call(0.5), toil.call(0.5))
            await stage.let_pass(2.0)
            victim, way = trees[turn % 3], next(ways)
            if way == "child" and (children := victim.children()):
                os.kill(chance.choice(children), number)
                continue
            victim.send(number) if way == "supervisor" else victim.send_each(number)
            trees[turn % 3] = stage.hire(processes=2, slots=4, grace=1.0)
        after = await stage.succeeded(*jobs, within=4 * PATIENCE)
        assert len(after) == len(signals) * 8
        lost = sum(job.crashes for job in after)
        print(f"{len(after)} jobs, {lost} lost attempts, at most {max(job.crashes for job in after)} of one job")  # noqa: T201 - a figure

    await play(scene, tmp_path, ONCE, grounds)
