"""Time: the clock of the machine jumps, and jobs whose time is up."""

from pathlib import Path

import pytest

from tests.flows import crew
from tests.flows.crew import WrongClock, nap, stay
from tests.flows.fleet import PATIENCE, Stage, Terms, calls, flow, on_all_terms, play
from tests.flows.ground import Grounds

HOUR = 3_600_000


@on_all_terms
@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
async def test_a_jump_of_the_clock_loses_and_doubles_nothing(
    jump: int, terms: Terms, tmp_path: Path, grounds: Grounds
) -> None:
    async def scene(stage: Stage) -> None:
        wrong = stage.folder / "clock"
        wrong.write_text("0")
        stage.app.clock = WrongClock(wrong)
        trees = [stage.hire(slots=2, environ={crew.CLOCK: str(wrong)}) for _ in range(2)]
        long = await stage.enqueue(*calls(stay, 4, stage.mark("end")))
        await stage.running(*long)
        await stage.until(lambda: all(tree.children() for tree in trees), "everybody is there")
        new = stage.folder / "new clock"
        new.write_text(str(jump))
        new.rename(wrong)
        await stage.until(lambda: all(tree.said("clock jumped") for tree in trees), "the jump was noticed")
        more = await stage.enqueue(*calls(nap, 10))
        await stage.let_the_dead_be_buried()
        stage.release("end")
        after = await stage.succeeded(*long, *more, within=PATIENCE + stage.terms.lease)
        assert {(job.charged, job.crashes) for job in after} == {(0, 0)}
        assert len(stage.began()) == len(long) + len(more)

    await play(scene, tmp_path, terms, grounds)


@flow
async def test_a_job_past_its_deadline_dies_without_a_run(stage: Stage) -> None:
    late, early = await stage.enqueue(nap.using(deadline=0.2).call(), nap.using(deadline="1h").call())
    await stage.let_pass(0.3)
    stage.hire()
    (dead,) = await stage.ended(late)
    assert (dead.state, dead.death, dead.attempt) == ("dead", "expired", 0)
    await stage.succeeded(early)
    assert stage.began(late) == []
