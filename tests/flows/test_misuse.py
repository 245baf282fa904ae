"""Misuse: tasks that raise what no code should raise, close the app that runs them, or fork."""

from reprieve import Job
from tests.flows.fleet import Stage, calls, flow, is_alive
from tests.flows.workload import (
    ERRORS,
    close_app,
    close_app_in_a_thread,
    fail_under_a_backoff_that_exits,
    fork,
    fork_and_terminate,
    fork_in_a_process,
    fork_in_a_thread,
    nap,
    stay,
    throw,
    throw_in_a_process,
    throw_in_a_thread,
)


@flow
async def test_whatever_a_task_raises_is_the_failure_of_its_job_and_takes_no_slot(stage: Stage) -> None:
    tree = stage.hire(slots=2)
    await stage.until(tree.children, "the child is there")
    before = tree.children()
    tasks = (throw, throw_in_a_thread, throw_in_a_process)
    jobs = await stage.enqueue(*(task.call(name) for name in ERRORS for task in tasks))
    after = await stage.ended(*jobs)
    assert [(job.state, job.charged, job.crashes) for job in after] == [("dead", 1, 0)] * len(jobs)
    for name, reason in zip((name for name in ERRORS for _ in tasks), map(_reason, after), strict=True):
        assert name in reason, reason
    # Both slots are free, in the same process.
    await stage.running(*await stage.enqueue(*calls(stay, 2, stage.mark("end"))))
    stage.release("end")
    assert tree.children() == before


@flow
async def test_a_backoff_that_exits_ends_neither_its_job_nor_the_process(stage: Stage) -> None:
    tree = stage.hire()
    await stage.until(tree.children, "the child is there")
    before = tree.children()
    (job,) = await stage.succeeded(await stage.enqueue_one(fail_under_a_backoff_that_exits.call()))
    assert (job.attempt, job.charged, job.crashes) == (2, 1, 0)
    assert tree.children() == before


@flow
async def test_a_task_that_closes_its_app_fails_and_harms_no_other(stage: Stage) -> None:
    tree = stage.hire()
    neighbour = await stage.enqueue_one(stay.call(stage.mark("end")))
    await stage.running(neighbour)
    before = tree.children()
    calls_ = [close_app.call(how) for how in ("with", "async with", "close", "aclose")]
    after = await stage.ended(*await stage.enqueue(*calls_, close_app_in_a_thread.call()))
    assert [job.death for job in after] == ["exhausted"] * 5
    assert ["the app cannot be closed here" in _reason(job) for job in after] == [True] * 5
    # Refused before anything is done inside of the block.
    assert [line for line in stage.lines() if line.what == "saw"] == []
    stage.release("end")
    (job,) = await stage.succeeded(neighbour)
    assert (job.attempt, job.crashes) == (1, 0)
    assert tree.children() == before


@flow
async def test_a_fork_that_returns_from_its_task_ends(stage: Stage) -> None:
    tree = stage.hire()
    neighbour = await stage.enqueue_one(stay.call(stage.mark("end")))
    await stage.running(neighbour)
    jobs = await stage.enqueue(fork.call(), fork_in_a_thread.call(), fork_in_a_process.call())
    await stage.succeeded(*jobs)
    forks = await stage.until(lambda: _forks(stage), "all forks have been there")
    await stage.until(lambda: not any(map(is_alive, forks)), "all forks have ended")
    assert [len(stage.began(job)) for job in jobs] == [1] * 3
    stage.release("end")
    (job,) = await stage.succeeded(neighbour)
    assert (job.attempt, job.crashes) == (1, 0)
    assert len(stage.finished(neighbour)) == 1
    assert tree.said("child died") == []


@flow
async def test_a_signal_to_a_fork_does_not_reach_its_worker(stage: Stage) -> None:
    tree = stage.hire()
    await stage.until(tree.children, "the child is there")
    before = tree.children()
    await stage.succeeded(*await stage.enqueue(*calls(fork_and_terminate, 3)))
    await stage.succeeded(*await stage.enqueue(*calls(nap, 3)))
    assert tree.children() == before


def _forks(stage: Stage) -> list[int]:
    """Return the forks that have said so themselves, when there are three."""
    found = [line.pid for line in stage.lines() if line.what == "saw" and line.how == str(line.pid)]
    return found if len(found) == 3 else []


def _reason(job: Job) -> str:
    return "" if job.cause is None else f"{job.cause.code}: {job.cause.reason}"
