"""Attempts that are ended from outside: because they take too long, or because a person cancels the job."""

import asyncio
from pathlib import Path

import pytest

from reprieve import Task
from reprieve.clock import ticks
from reprieve.core.move import Cancel
from tests.flows import workload
from tests.flows.fleet import OFTEN, ONCE, SOON, Stage, Terms, calls, flow, is_alive, on_all_terms, play
from tests.flows.ground import Grounds


def short_name(task: Task[[], object]) -> str:
    return task.name.rpartition(".")[2]


@on_all_terms
@pytest.mark.parametrize(
    "task", [workload.overrun_asleep, workload.overrun_in_a_thread, workload.overrun_in_a_process], ids=short_name
)
async def test_a_job_that_takes_too_long_is_stopped_beside_its_neighbours(
    task: Task[[], object], terms: Terms, tmp_path: Path, grounds: Grounds
) -> None:
    async def scene(stage: Stage) -> None:
        tree = stage.hire()
        late, *neighbours = await stage.enqueue(task.call(), *calls(workload.stay, 2, stage.mark("end")))
        await stage.running(late, *neighbours)
        children = tree.children()
        first, second = await stage.until(lambda: stage.began(late)[1:] and stage.began(late), "it runs again")
        stage.figure(f"{short_name(task)} again", second.at - first.at)
        assert tree.children() == children
        stage.release("end")
        for job in await stage.succeeded(*neighbours):
            assert (job.attempt, job.charged, job.crashes) == (1, 0, 0)
        await check(stage, late)
        assert tree.said("session declared dead") == []

    await play(scene, tmp_path, terms, grounds)


@on_all_terms
@pytest.mark.parametrize("task", [workload.overrun_on_the_loop, workload.overrun_with_the_interpreter], ids=short_name)
async def test_a_job_that_blocks_its_process_is_stopped_with_it(
    task: Task[[], object], terms: Terms, tmp_path: Path, grounds: Grounds
) -> None:
    async def scene(stage: Stage) -> None:
        tree = stage.hire()
        neighbours = await stage.enqueue(*calls(workload.stay, 2, stage.mark("end")))
        await stage.running(*neighbours)
        children = tree.children()
        late = await stage.enqueue_one(task.call())
        first, second = await stage.until(lambda: stage.began(late)[1:] and stage.began(late), "it runs again")
        stage.figure(f"{short_name(task)} again", second.at - first.at)
        assert not any(map(is_alive, children))
        stage.release("end")
        for job in await stage.succeeded(*neighbours):
            assert (job.attempt, job.charged, job.crashes) == (2, 0, 1)
        # Any of them might have been to blame, so none is charged; apart from the others it ended within its time.
        (after,) = await stage.succeeded(late)
        assert (after.attempt, after.charged, after.crashes) == (2, 0, 1)
        assert tree.said("session declared dead") == []

    await play(scene, tmp_path, terms, grounds)


async def check(stage: Stage, late: str) -> None:
    """Check that a job that took too long was charged for it, once, and ended well."""
    (after,) = await stage.succeeded(late)
    assert (after.attempt, after.charged, after.crashes) == (2, 1, 0)
    assert after.cause is not None
    assert (after.cause.code, after.cause.kind) == ("timeout", "transient")


@pytest.mark.faults
async def test_a_child_whose_threads_do_not_end_is_replaced(tmp_path: Path, grounds: Grounds) -> None:
    async def scene(stage: Stage) -> None:
        tree = stage.hire(slots=2)
        late = await stage.enqueue_one(workload.overrun_in_a_thread.call())
        await stage.running(late)
        children = tree.children()
        await stage.until(lambda: tree.said("child has jobs that do not end"), "the child is given up")
        await stage.until(lambda: not any(map(is_alive, children)), "the child has ended")
        await stage.succeeded(*await stage.enqueue(*calls(workload.nap, 4)))
        await check(stage, late)
        assert len(stage.began(late)) == 2

    await play(scene, tmp_path, OFTEN, grounds)


@flow
async def test_running_jobs_are_cancelled_before_they_end(stage: Stage) -> None:
    stage.hire()
    jobs = await stage.enqueue(workload.nap.call(60.0), workload.doze.call(60.0), workload.toil.call(60.0))
    begun = await stage.running(*jobs)
    (apart,) = [line.pid for line in begun if line.job == jobs[2]]
    asked = ticks()
    answers = await asyncio.gather(*(stage.app.job(job).acancel(by="ada", reason="not needed") for job in jobs))
    assert answers == ["stopping"] * 3
    after = await stage.ended(*jobs)
    stage.figure("running jobs cancelled", ticks() - asked, at_most=SOON)
    assert [job.state for job in after] == ["cancelled"] * 3
    for job in jobs:
        (*_, (_, event)) = await stage.app.store.events(job_id=job)
        assert event.move == Cancel(by="ada", reason="not needed")
    assert len(stage.began(*jobs)) == 3
    assert not is_alive(apart)


@pytest.mark.faults
async def test_running_jobs_are_stopped_at_their_deadlines(tmp_path: Path, grounds: Grounds) -> None:
    async def scene(stage: Stage) -> None:
        tree = stage.hire()
        await stage.succeeded(await stage.enqueue_one(workload.toil.call(0.0)))
        # Long enough for a process to start under load: an attempt that has not begun by then is stopped too.
        tasks = (workload.nap, workload.doze, workload.toil)
        late = await stage.enqueue(*(task.using(deadline="20s").call(60.0) for task in tasks))
        begun = await stage.running(*late)
        (apart,) = [line.pid for line in begun if line.job == late[2]]
        for job in await stage.ended(*late):
            assert (job.state, job.death, job.attempt, job.crashes) == ("dead", "expired", 1, 0)
            assert job.cause is not None
            assert job.cause.reason == "its deadline passed while it ran"
        await stage.until(lambda: not is_alive(apart), "the isolated process has ended")
        assert tree.said("child died") == []

    await play(scene, tmp_path, ONCE, grounds)
