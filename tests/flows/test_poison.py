"""Jobs that cannot be run: those that take their process down, and those that cannot be decoded."""

from pathlib import Path

from msgspec.structs import replace

from reprieve.clock import ticks
from tests.flows.fleet import SOON, Stage, Terms, calls, flow, on_all_terms, play
from tests.flows.ground import Grounds
from tests.flows.workload import add, die, die_apart, nap


@on_all_terms
async def test_a_job_that_kills_its_worker_dies_after_three_runs_and_alone(
    tmp_path: Path, terms: Terms, grounds: Grounds
) -> None:
    async def scene(stage: Stage) -> None:
        tree = stage.hire(processes=2, slots=20)
        await stage.until(lambda: len(tree.children()) == 2, "both children are there")
        enqueued = ticks()
        poison, *healthy = await stage.enqueue(die.call(), *calls(nap, 10, 0.1))
        others = await stage.succeeded(*healthy)
        last_at = max(line.at for line in stage.finished(*healthy))
        stage.figure("healthy jobs done beside a poison", last_at - enqueued, at_most=5.0 + SOON)
        (dead,) = await stage.ended(poison)
        assert (dead.state, dead.death, dead.crashes, dead.charged) == ("dead", "poison", 3, 0)
        assert [line.attempt for line in stage.began(poison)] == [1, 2, 3]
        assert {job.charged for job in others} == {0}
        assert max(job.crashes for job in others) <= 1

    # One at a time: every healthy job was lost with the poison, and then starts a process of its own.
    await play(scene, tmp_path, replace(terms, at_once=1), grounds)


@flow
async def test_a_job_that_kills_a_process_of_its_own_harms_no_other(stage: Stage) -> None:
    tree = stage.hire(slots=8)
    await stage.until(tree.children, "the child is there")
    before = tree.children()
    poison, *healthy = await stage.enqueue(die_apart.call(), *calls(nap, 10, 0.1))
    others = await stage.succeeded(*healthy)
    (dead,) = await stage.ended(poison)
    assert (dead.state, dead.death, dead.crashes, dead.charged) == ("dead", "poison", 3, 0)
    assert [line.attempt for line in stage.began(poison)] == [1, 2, 3]
    assert [(job.attempt, job.crashes, job.charged) for job in others] == [(1, 0, 0)] * 10
    assert tree.children() == before


@flow
async def test_a_job_that_cannot_be_decoded_dies_at_once_and_keeps_its_payload(stage: Stage) -> None:
    tree = stage.hire()
    await stage.until(tree.children, "the child is there")
    before = tree.children()
    broken = replace(stage.app.producer.job_of(add.call(1, 2)), payload=b"\xff{ no JSON")
    unfit = replace(stage.app.producer.job_of(add.call(1, 2)), payload=nap.call(0.5).payload)
    enqueued = ticks()
    await stage.app.store.enqueue([broken, unfit], stage.app.clock.now())
    others = await stage.enqueue(*calls(nap, 5))
    dead = await stage.ended(broken.id, unfit.id)
    stage.figure("unreadable jobs dead", ticks() - enqueued, at_most=SOON)
    assert [job.death for job in dead] == ["undecodable"] * 2
    assert [job.payload for job in dead] == [broken.payload, unfit.payload]
    reasons = [job.cause.reason for job in dead if job.cause]
    assert ["does not fit add" in reason for reason in reasons] == [True, True]
    await stage.succeeded(*others)
    assert tree.children() == before
