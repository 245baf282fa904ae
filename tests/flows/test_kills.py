"""Kills: processes die without a word, and what they held runs again."""

import os
import signal

from reprieve.clock import ticks
from tests.flows.fleet import PATIENCE, SOON, Stage, calls, flow, is_alive
from tests.flows.workload import nap, stay, toil


@flow
async def test_a_job_of_a_killed_child_runs_again_before_its_lease_is_over(stage: Stage) -> None:
    # With a lease so long that only its supervisor can have taken the job back.
    stage.hire(lease=60.0)
    job = await stage.enqueue_one(stay.call(stage.mark("end")))
    (first,) = await stage.running(job)
    killed = ticks()
    os.kill(first.pid, signal.SIGKILL)
    second = (await stage.running(job, attempt=2))[-1]
    stage.figure("run again after the kill of its child", second.at - killed, at_most=SOON)
    stage.release("end")
    (after,) = await stage.succeeded(job)
    assert (after.crashes, after.charged) == (1, 0)
    assert len(stage.began(job)) == 2


@flow
async def test_only_what_had_begun_in_a_killed_child_counts_as_crashed(stage: Stage) -> None:
    tree = stage.hire(processes=2, slots=2, lease=60.0)
    await stage.until(lambda: len(tree.children()) == 2, "both children are there")
    neighbours = await stage.enqueue(*calls(stay, 2, stage.mark("end")))
    (neighbour,) = {line.pid for line in await stage.running(*neighbours)}
    # The neighbour is busy. Quick jobs teach the other child to fetch ahead, so it takes all that comes then.
    await stage.succeeded(*await stage.enqueue(*calls(nap, 60)))
    stage.release("now")
    both = await stage.enqueue(*calls(stay, 2, stage.mark("end")), *calls(stay, 30, stage.mark("now")))
    begun, fetched = both[:2], both[2:]
    (pid,) = {line.pid for line in await stage.running(*begun)}
    assert pid != neighbour

    async def is_fetched() -> bool:
        return any(job.state == "running" for job in await stage.jobs(fetched))

    await stage.until(is_fetched, "the child has fetched what it has no slot for", every=0)
    os.kill(pid, signal.SIGKILL)
    stage.release("end")
    after = await stage.succeeded(*neighbours, *begun, *fetched)
    assert {job.id for job in after if job.crashes} == set(begun)
    assert {job.charged for job in after} == {0}
    assert [len(stage.began(name)) for name in begun] == [2, 2]
    assert {len(stage.began(name)) for name in (*neighbours, *fetched)} == {1}


@flow
async def test_jobs_of_a_killed_worker_run_elsewhere_when_its_lease_is_over(stage: Stage) -> None:
    victim = stage.hire(processes=2, slots=2)
    long = await stage.enqueue(*calls(stay, 4, stage.mark("end")))
    await stage.running(*long)
    heir = stage.hire(slots=1)
    await stage.until(heir.children, "another worker is up")
    killed = ticks()
    victim.send_all(signal.SIGKILL)
    first = (await stage.until(lambda: stage.began(*long)[4:], "a job runs again", stage.terms.lease + PATIENCE))[0]
    lease = stage.terms.lease
    stage.figure(f"run again after a kill of all, lease {lease:g} s", first.at - killed, at_most=lease + 2 + SOON)
    # Those that may have been to blame run one after the other, so that the second begins when the first has ended.
    stage.release("end")
    after = await stage.succeeded(*long)
    assert [(job.crashes, job.charged, job.attempt) for job in after] == [(1, 0, 2)] * 4
    assert len(stage.began(*long)) == 8


@flow
async def test_jobs_of_a_killed_worker_wait_for_the_next_one(stage: Stage) -> None:
    victim = stage.hire()
    long = await stage.enqueue(*calls(stay, 3, stage.mark("end")))
    await stage.running(*long)
    victim.send_all(signal.SIGKILL)
    stage.release("end")
    stage.hire()
    after = await stage.succeeded(*long, within=stage.terms.lease + PATIENCE)
    assert [(job.crashes, job.charged, job.attempt) for job in after] == [(1, 0, 2)] * 3
    assert len(stage.began(*long)) == 6


@flow
async def test_children_die_with_their_supervisor(stage: Stage) -> None:
    tree = stage.hire(processes=2)
    apart = await stage.enqueue_one(toil.call(60.0))
    (begun,) = await stage.running(apart)
    await stage.until(lambda: len(tree.children()) == 2, "both children are there")
    orphans = [*tree.children(), begun.pid]
    assert len(set(orphans)) == 3
    tree.send(signal.SIGKILL)
    await stage.until(lambda: not any(map(is_alive, orphans)), "all children are dead")


@flow
async def test_jobs_behind_slow_ones_go_to_a_child_that_is_free(stage: Stage) -> None:
    tree = stage.hire(processes=2, slots=2)
    await stage.until(lambda: len(tree.children()) == 2, "both children are there")
    # Quick jobs teach the children to fetch ahead.
    await stage.succeeded(*await stage.enqueue(*calls(nap, 60)))
    slow = await stage.enqueue(*calls(stay, 4, stage.mark("end")))
    assert len({line.pid for line in await stage.running(*slow)}) == 2
