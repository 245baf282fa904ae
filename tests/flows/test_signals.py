"""Signals that reach every process of a worker, as systemd and terminals send them: its supervisor alone heeds them."""

import signal

from tests.flows.fleet import Stage, flow, is_alive
from tests.flows.workload import stay, stay_apart, terminate_program


async def begin(stage: Stage) -> list[str]:
    """Start a job in each kind of process."""
    jobs = await stage.enqueue(stay.call(stage.mark("end")), stay_apart.call(stage.mark("end")))
    await stage.running(*jobs)
    return jobs


async def check(stage: Stage, jobs: list[str]) -> None:
    """Check that jobs end as if nothing had happened."""
    stage.release("end")
    after = await stage.succeeded(*jobs)
    assert [(job.attempt, job.charged, job.crashes) for job in after] == [(1, 0, 0)] * len(jobs)


@flow
async def test_a_stop_signal_to_every_process_leaves_all_jobs_their_grace(stage: Stage) -> None:
    tree = stage.hire(grace=60.0)
    jobs = await begin(stage)
    told = tree.send_each(signal.SIGTERM)
    assert len(told) >= 3
    await stage.until(lambda: tree.said("worker stopping"), "the worker was told")
    await stage.let_pass(0.5)
    assert all(map(is_alive, told))
    await check(stage, jobs)
    await stage.until(lambda: tree.status() is not None, "the worker has stopped")
    assert tree.status() == 0
    await stage.until(lambda: not any(map(is_alive, told)), "all its processes have ended")
    assert tree.said("child died") == []


@flow
async def test_jobs_that_outlast_the_grace_after_such_a_signal_count_no_crash(stage: Stage) -> None:
    tree = stage.hire(grace=0.5)
    jobs = await begin(stage)
    tree.send_each(signal.SIGTERM)
    await stage.until(lambda: tree.status() is not None, "the worker has stopped")
    assert [(job.state, job.charged, job.crashes) for job in await stage.jobs(jobs)] == [("waiting", 0, 0)] * 2


@flow
async def test_the_end_of_its_terminal_stops_a_worker_gracefully(stage: Stage) -> None:
    tree = stage.hire(grace=60.0)
    jobs = await begin(stage)
    # A shell and the kernel may both send it.
    tree.send_each(signal.SIGHUP)
    await stage.until(lambda: tree.said("worker stopping"), "the worker was told")
    tree.send_each(signal.SIGHUP)
    await stage.let_pass(0.5)
    await check(stage, jobs)
    await stage.until(lambda: tree.status() is not None, "the worker has stopped")
    assert (tree.status(), len(tree.said("worker stopping"))) == (0, 1)


@flow
async def test_a_worker_under_nohup_outlives_its_terminal(stage: Stage) -> None:
    tree = stage.hire(prefix=["nohup"])
    jobs = await begin(stage)
    before = tree.children()
    told = tree.send_each(signal.SIGHUP)
    await stage.let_pass(0.5)
    assert all(map(is_alive, told))
    await check(stage, jobs)
    assert (tree.status(), tree.children(), tree.said("worker stopping")) == (None, before, [])


@flow
async def test_a_program_that_a_task_starts_can_be_terminated(stage: Stage) -> None:
    stage.hire()
    await stage.succeeded(await stage.enqueue_one(terminate_program.call()))
