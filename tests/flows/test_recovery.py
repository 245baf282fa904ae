"""Recovery: when a silent worker counts as dead."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from reprieve.clock import SystemClock, ticks
from reprieve.config import Settings
from reprieve.registry import Registry
from reprieve.stores.protocol import Claim, Heartbeat
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
