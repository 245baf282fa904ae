"""Tasks that ask for events: a real worker tells every step of their jobs once, and no step of the others."""

from reprieve.core.events import Event
from reprieve.stores.protocol import EventQuery
from tests.flows.fleet import Stage, calls, flow
from tests.flows.workload import nap, tell, tell_and_stay


async def told(stage: Stage) -> dict[str, list[str]]:
    """Return the names of all events, by job."""
    found: dict[str, list[str]] = {}
    page = await stage.app.store.read_events(EventQuery(only="jobs", limit=10_000))
    for _, event in page.events:
        assert isinstance(event, Event)
        found.setdefault(event.job_id, []).append(event.name)
    return found


@flow
async def test_every_step_of_a_job_that_tells_all_is_told_once(stage: Stage) -> None:
    stage.hire()
    ids = await stage.enqueue(*calls(tell, 40))
    await stage.succeeded(*ids, *await stage.enqueue(*calls(nap, 5)))
    steps = ["JobEnqueued", "JobStarted", "JobSucceeded"]

    async def is_told() -> bool:
        # On a Cluster the events of the last second are held back.
        return await told(stage) == dict.fromkeys(ids, steps)

    await stage.until(is_told, "every step was told once, and nothing else", every=0.2)
    history = await stage.app.job(ids[0]).ahistory()
    assert [event.name for event in history.events] == steps
    assert history.replay() == history.job


@flow
async def test_start_is_told_while_the_job_runs_and_the_worker_is_full(stage: Stage) -> None:
    stage.hire(slots=1)
    gate = stage.mark("gate")
    (job_id,) = await stage.enqueue(tell_and_stay.call(gate))

    async def is_started() -> bool:
        return (await told(stage)).get(job_id) == ["JobEnqueued", "JobStarted"]

    await stage.until(is_started, "the start is told before the job has ended", every=0.2)
    stage.release("gate")
    await stage.succeeded(job_id)
