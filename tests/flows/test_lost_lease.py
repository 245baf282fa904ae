"""A lost lease: an attempt whose job belongs to its session no more is ended, and the log says why."""

from reprieve.core import change
from reprieve.core.move import Return
from tests.flows.fleet import Stage, flow
from tests.flows.workload import first_stay


@flow
async def test_end_of_an_attempt_whose_lease_is_lost_is_logged(stage: Stage) -> None:
    # Its only slot is taken, so it does not claim the same job again.
    tree = stage.hire(slots=1)
    name = await stage.enqueue_one(first_stay.call(stage.mark("never"), ""))
    await stage.running(name)
    now = stage.app.clock.now()
    results = await stage.app.store.apply([change.settle(await stage.job(name), Return(), now)], now)
    assert results == ["applied"]
    (entry,) = await stage.until(lambda: tree.said("lease lost"), "the worker notices")
    assert (entry["jobId"], entry["level"]) == (name, "warning")
    assert "no longer holds" in entry["reason"]
    await stage.until(lambda: [line for line in stage.finished(name) if line.how == "CancelledError"], "it is ended")
