"""Time: the clock of the machine jumps, and jobs whose time is up."""

from pathlib import Path

import pytest

from reprieve.clock import ticks
from tests.flows import workload
from tests.flows.fleet import PATIENCE, Stage, Terms, calls, flow, on_all_terms, play
from tests.flows.ground import Grounds
from tests.flows.workload import WrongClock, fail_once, nap, stay

HOUR = 3_600_000


@on_all_terms
@pytest.mark.parametrize("grounds", ["sqlite"], indirect=True)
@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
async def test_a_jump_of_the_clock_loses_and_doubles_nothing(
    jump: int, terms: Terms, tmp_path: Path, grounds: Grounds
) -> None:
    async def scene(stage: Stage) -> None:
        wrong = stage.folder / "clock"
        wrong.write_text("0")
        trees = [stage.hire(slots=2, environ={workload.CLOCK: str(wrong)}) for _ in range(2)]
        with stage.app.override(clock=WrongClock(wrong)):
            long = await stage.enqueue(*calls(stay, 4, stage.mark("end")))
            await stage.running(*long)
            await stage.until(lambda: all(tree.children() for tree in trees), "all children run")
            set_to(wrong, jump)
            await stage.until(lambda: all(tree.said("clock jumped") for tree in trees), "the jump was noticed")
            more = await stage.enqueue(*calls(nap, 10))
            await stage.let_the_dead_be_buried()
            stage.release("end")
            after = await stage.succeeded(*long, *more, within=PATIENCE + stage.terms.lease)
        assert {(job.charged, job.crashes) for job in after} == {(0, 0)}
        assert len(stage.began()) == len(long) + len(more)

    await play(scene, tmp_path, terms, grounds)


@on_all_terms
@pytest.mark.parametrize("grounds", ["postgres", "redis"], indirect=True)
@pytest.mark.parametrize("error", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_one_machine_whose_clock_is_wrong_harms_no_job(
    error: int, terms: Terms, tmp_path: Path, grounds: Grounds
) -> None:
    async def scene(stage: Stage) -> None:
        wrong = stage.folder / "clock"
        wrong.write_text(str(error))
        right = stage.hire(slots=2)
        ours = await stage.enqueue(*calls(stay, 2, stage.mark("end")))
        await stage.running(*ours)
        odd = stage.hire(slots=4, environ={workload.CLOCK: str(wrong)})
        theirs = await stage.enqueue(*calls(stay, 2, stage.mark("end")))
        await stage.running(*theirs)
        enqueued = ticks()
        late = await stage.enqueue(*calls(nap.using(delay=1.0), 2))
        again = await stage.enqueue(*calls(fail_once, 2, after=0.2))
        await stage.let_the_dead_be_buried()
        set_to(wrong, -error)
        await stage.let_the_dead_be_buried()
        stage.release("end")
        after = await stage.succeeded(*ours, *theirs, *late, *again)
        assert {job.crashes for job in after} == {0}
        assert len(stage.began(*ours, *theirs, *late)) == len(ours) + len(theirs) + len(late)
        assert min(line.at for line in stage.began(*late)) >= enqueued + 1.0
        for name in again:
            (failed, _), (_, second) = stage.finished(name), stage.began(name)
            assert second.at - failed.at >= 0.2
        assert not right.said("clock jumped")
        assert not odd.said("clock jumped")

    await play(scene, tmp_path, terms, grounds)


def set_to(wrong: Path, error: int) -> None:
    """Set a clock at one moment for every process that reads it."""
    new = wrong.with_name("new clock")
    new.write_text(str(error))
    new.rename(wrong)


@flow
async def test_a_job_past_its_deadline_dies_without_a_run(stage: Stage) -> None:
    late, early = await stage.enqueue(nap.using(deadline=0.2).call(), nap.using(deadline="1h").call())
    await stage.let_pass(0.3)
    stage.hire()
    (dead,) = await stage.ended(late)
    assert (dead.state, dead.death, dead.attempt) == ("dead", "expired", 0)
    await stage.succeeded(early)
    assert stage.began(late) == []
