"""Recovery: when a silent worker counts as dead."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from msgspec.structs import replace

from reprieve.clock import SystemClock, ticks
from reprieve.config import Settings
from reprieve.core.outcome import Crashed
from reprieve.registry import Registry
from reprieve.stores.forwarding import ForwardingStore
from reprieve.stores.protocol import Claim, Filter, Heartbeat
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import new_job
from reprieve.worker import recovery
from reprieve.worker.recovery import Recovery
from tests.flows.ground import File

HEARTBEAT = 0.1
LEASE = 1.0
PATIENCE = 30.0


async def test_after_a_standstill_no_session_is_expired_until_all_could_send_a_heartbeat() -> None:
    store, clock = SqliteStore(None), SystemClock()
    looker = Recovery(store, clock, Registry(Settings()), HEARTBEAT)

    def heartbeat(*, is_new: bool = False) -> Heartbeat:
        return Heartbeat(session="s", now=clock.now(), lease=LEASE, slots=1, is_new=is_new)

    await store.heartbeat(heartbeat(is_new=True))
    await store.enqueue([new_job(store)], clock.now())
    claimed = await store.claim(Claim(session="s", number=1, now=clock.now(), queues=("default",), limit=1))
    assert len(claimed.jobs) == 1
    steady = ticks() + recovery.RECOVERY_INTERVAL_SECONDS + 2 * HEARTBEAT
    while ticks() < steady:
        await store.heartbeat(heartbeat())
        assert not await looker.recover_if_steady()
        await asyncio.sleep(HEARTBEAT)
    # No check and no heartbeat in this time, as when the whole machine stands still.
    await asyncio.sleep(recovery.RECOVERY_INTERVAL_SECONDS + 2 * HEARTBEAT)
    assert await looker.recover_if_steady() == 0
    again, recovered = ticks(), 0
    while not recovered:
        assert ticks() < again + PATIENCE
        await asyncio.sleep(HEARTBEAT)
        recovered = await looker.recover_if_steady()
    assert ticks() - again > HEARTBEAT
    await store.close()


async def test_after_a_lock_no_session_is_expired_before_its_heartbeat(tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path / "jobs.db"), SystemClock()
    looker = Recovery(store, clock, Registry(Settings()), HEARTBEAT)
    heartbeat = Heartbeat(session="s", now=clock.now(), lease=LEASE, slots=1, is_new=True)
    await store.heartbeat(heartbeat)
    await looker.recover_if_steady()
    until = ticks() + LEASE + recovery.RECOVERY_INTERVAL_SECONDS
    with File(tmp_path / "jobs.db").locked():
        # Looks that ask nothing of the store go on; one that does waits with the time at which it asked.
        look = asyncio.create_task(looker.recover_if_steady())
        while ticks() < until:
            await asyncio.sleep(HEARTBEAT)
            if look.done():
                look = asyncio.create_task(looker.recover_if_steady())
    await look
    assert await store.heartbeat(replace(heartbeat, now=clock.now(), is_new=False))
    await store.close()


class LateClaim(ForwardingStore):
    """A store that receives the last claim of a process that is gone right before its session is ended."""

    def _call(self, operation: str) -> AbstractContextManager[object]:
        return nullcontext()

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        if not heartbeat.lease:
            claim = Claim(session=heartbeat.session, number=2, now=heartbeat.now, queues=("default",), limit=1)
            assert len((await self.inner.claim(claim)).jobs) == 1
        return await super().heartbeat(heartbeat)


async def test_a_claim_that_arrives_after_the_death_of_its_process_counts_no_crash() -> None:
    store, clock = LateClaim(SqliteStore(None)), SystemClock()
    looker = Recovery(store, clock, Registry(Settings()), HEARTBEAT)
    await store.heartbeat(Heartbeat(session="s", now=clock.now(), lease=LEASE, slots=1, is_new=True))
    jobs = [new_job(store) for _ in range(2)]
    await store.enqueue(jobs, clock.now())
    claimed = await store.claim(Claim(session="s", number=1, now=clock.now(), queues=("default",), limit=1))
    (started,) = claimed.jobs

    async def end() -> None:
        await store.heartbeat(Heartbeat(session="s", now=clock.now(), lease=0, slots=1))

    # It may lease the very job that was taken back before.
    await looker.end_session("s", lambda job: Crashed(started=job == started), end)
    assert await looker.recover() == 0
    after = {job.id: (job.state, job.crashes) for job in (await store.find(Filter(), clock.now())).jobs}
    assert after == {job.id: ("waiting", int(job.id == started.id)) for job in jobs}
    await store.close()
