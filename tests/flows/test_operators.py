"""Operators: however many of them want a job to run again, and whatever it does by itself, it runs once."""

import asyncio

from reprieve.clock import ticks
from reprieve.core.move import ManualRetry
from reprieve.errors import ConcurrentModification, InvalidRetryState
from tests.flows.fleet import Stage, flow
from tests.flows.workload import fail_once

OPERATORS = 4

LATER = 30.0
"""Seconds after which the automatic retry would come."""


async def retry(stage: Stage, job: str) -> None:
    """Let several people, each with an app of their own, retry a job at once; accepted retries are in its events."""

    def ask(number: int) -> bool:
        with stage.open_app() as app:
            try:
                app.job(job).retry(by=f"operator {number}", reason="the account is there now")
            except (ConcurrentModification, InvalidRetryState):
                return False
            return True

    let = sum(await asyncio.gather(*(asyncio.to_thread(ask, number) for number in range(OPERATORS))))
    moves = [event.move for _, event in await stage.app.store.events(job_id=job)]
    assert let == sum(isinstance(move, ManualRetry) for move in moves)


@flow
async def test_several_operators_run_a_dead_job_once(stage: Stage) -> None:
    stage.hire()
    job = await stage.enqueue_one(fail_once.call())
    (dead,) = await stage.ended(job)
    assert dead.death == "permanent"
    await retry(stage, job)
    await check(stage, job)


@flow
async def test_several_operators_replace_the_retry_that_was_scheduled(stage: Stage) -> None:
    stage.hire()
    job = await stage.enqueue_one(fail_once.call(after=LATER))
    first = (await stage.until(lambda: stage.finished(job), "it has failed"))[0]
    await stage.until(lambda: is_retrying(stage, job), "it waits for its retry")
    await retry(stage, job)
    await check(stage, job)
    assert stage.began(job)[1].at < first.at + LATER
    assert (await stage.job(job)).state == "succeeded"


@flow
async def test_operators_that_race_the_automatic_retry_run_nothing_twice(stage: Stage) -> None:
    stage.hire()
    job = await stage.enqueue_one(fail_once.call(after=0.5))
    first = (await stage.until(lambda: stage.finished(job), "it has failed"))[0]
    # An app takes a while to open: all ask at about the moment when the job is due.
    await stage.until(lambda: ticks() > first.at + 0.45, "it is nearly due", every=0.005)
    await retry(stage, job)
    await check(stage, job)


async def is_retrying(stage: Stage, job: str) -> bool:
    return (await stage.job(job)).state == "waiting"


async def check(stage: Stage, job: str) -> None:
    await stage.succeeded(job)
    assert [line.attempt for line in stage.began(job)] == [1, 2]
