"""A worker that asks for more than one claim leases: it asks again at once, and then waits to be notified."""

import asyncio
from collections.abc import Sequence

from reprieve import Reprieve
from reprieve.stores.protocol import Claim, Claimed, Heartbeat
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.store import MAX_JOBS_PER_CLAIM
from reprieve.worker.isolation import Processes
from reprieve.worker.worker import Worker
from tests.servers import redis as servers

JOBS = 2 * MAX_JOBS_PER_CLAIM + 50


class Overheard(RedisStore):
    """Notes what a session asks for."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.heard: list[str] = []

    async def claim(self, claim: Claim) -> Claimed:
        self.heard.append("claim")
        return await super().claim(claim)

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        if session:
            self.heard.append("wait")
        return await super().wait(queues, at_most, session)


async def test_worker_asks_again_at_once_while_there_is_more() -> None:
    app = Reprieve("sqlite://:memory:")
    have_started, may_end, started = asyncio.Event(), asyncio.Event(), 0

    @app.task(name="slow")
    async def slow() -> None:
        nonlocal started
        started += 1
        if started == JOBS:
            have_started.set()
        await may_end.wait()

    with servers.own() as server:
        store = Overheard(server.url)
        with app.override(store=store):
            for _ in range(JOBS):
                await slow.aenqueue()
            await store.heartbeat(Heartbeat(session="one", now=app.clock.now(), lease=600.0, slots=JOBS, is_new=True))
            worker = Worker(app, "one", slots=JOBS, isolation=Processes())
            working = asyncio.create_task(worker.run())
            async with asyncio.timeout(30):
                await have_started.wait()
                assert store.heard[:3] == ["claim"] * 3
                may_end.set()
                worker.stop()
                await working
        await store.close()
