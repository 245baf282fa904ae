"""Records that cannot be read: their jobs end, once and with a reason, and all other jobs run."""

from reprieve.core.unreadable import unreadable_record
from reprieve.stores.capabilities import Damageable
from reprieve.stores.protocol import Filter
from tests.flows.fleet import Stage, calls, flow
from tests.flows.workload import nap

DAMAGES = (b"", b"\xc1", b"\x94\xc4\x02", b"\x94\xc4\x00\xcb\x40\x14\x00\x00\x00\x00\x00\x00\xc0\xc0")


@flow
async def test_jobs_whose_records_cannot_be_read_die_once_and_all_others_run(stage: Stage) -> None:
    broken = await stage.enqueue(*calls(nap, len(DAMAGES), 0.1))
    healthy = await stage.enqueue(*calls(nap, 10, 0.1))
    store = stage.app.store
    assert isinstance(store, Damageable)
    for job_id, packed in zip(broken, DAMAGES, strict=True):
        await store.damage(job_id, packed)
    tree = stage.hire(slots=4)
    await stage.until(tree.children, "the child is there")
    before = tree.children()
    await stage.succeeded(*healthy)
    dead = await stage.ended(*broken)
    assert [(job.state, job.death) for job in dead] == [("dead", "undecodable")] * len(broken)
    records = [unreadable_record(job) for job in dead]
    assert [record.raw for record in records if record is not None] == list(DAMAGES)
    died = [entry for entry in tree.said("job died") if entry["jobId"] in broken]
    assert sorted(entry["jobId"] for entry in died) == sorted(broken)
    assert all("record cannot be read" in entry["errorReason"] for entry in died)
    assert not stage.began(*broken)
    assert tree.children() == before
    counts = (await store.tally("status", Filter(), stage.app.clock.now())).counts
    assert {status: count for status, count in counts.items() if count} == {"dead": len(broken), "succeeded": 10}
