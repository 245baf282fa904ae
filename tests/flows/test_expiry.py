"""Expiry: jobs that no worker can claim end at their deadline, and say so in the log."""

from reprieve import clock
from reprieve.stores.protocol import LimitUpdate
from reprieve.testing.conformance.stage import PROGRAM
from tests.flows.fleet import Stage, calls, flow
from tests.flows.workload import nap

SPAN = 1.0
"""Seconds until the deadline of the jobs."""


@flow
async def test_jobs_that_no_worker_can_claim_end_at_their_deadline(stage: Stage) -> None:
    paused = LimitUpdate(subject="task", name=nap.name, permits=0)
    await stage.app.store.update_limits([paused], clock.now(), PROGRAM)
    ready = await stage.enqueue(*calls(nap.using(deadline=SPAN), 150))
    scheduled = await stage.enqueue(*calls(nap.using(deadline=SPAN, delay="1h"), 10))
    elsewhere = await stage.enqueue(*calls(nap.using(deadline=SPAN, queue="unserved"), 10))
    fine = await stage.enqueue(*calls(nap.using(deadline="1h"), 5))
    worker = stage.hire(slots=5)
    ended = await stage.ended(*ready, *scheduled, *elsewhere)
    assert {(job.state, job.death) for job in ended} == {("dead", "expired")}
    late = max(job.finished_at - job.deadline_at for job in ended if job.finished_at and job.deadline_at) / 1_000
    stage.figure(f"{len(ended)} jobs ended after their deadline within", late)
    assert min(job.finished_at - job.deadline_at for job in ended if job.finished_at and job.deadline_at) >= 0
    assert not stage.began()
    await stage.until(lambda: worker.output.read_text().count("job died") >= len(ended), "the log has every death")
    released = LimitUpdate(subject="task", name=nap.name, permits=None)
    await stage.app.store.update_limits([released], clock.now(), PROGRAM)
    await stage.succeeded(*fine)
