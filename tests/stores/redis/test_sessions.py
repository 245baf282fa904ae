"""Sessions over several partitions: each has its part of the slots, and a reader sees the whole."""

from uuid import uuid4

import redis

from reprieve.stores.protocol import Store
from reprieve.stores.redis import RedisStore
from reprieve.testing.conformance.stage import START, Worker

PARTITIONS = 4


def capacity(url: str, prefix: str) -> list[dict[bytes, bytes]]:
    """Return what sessions add to the capacity of queues, by partition."""
    with redis.Redis.from_url(url, protocol=2) as client:
        keys = sorted(client.scan_iter(f"{{{prefix}*:capacity", count=1_000))
        return [client.hgetall(key) for key in keys]


async def test_slots_and_prefetch_are_shared_by_partitions_and_read_whole(redis_url: str) -> None:
    prefix = f"sessions_{uuid4().hex[:8]}"
    store: Store = RedisStore(f"{redis_url}?prefix={prefix}&partitions={PARTITIONS}")
    try:
        worker = await Worker.open(store, slots=20, prefetch=250, queues=("mail",), host="mail-3", tasks=("send",))
        (session,) = await store.sessions(START)
        assert (session.slots, session.prefetch, session.host, session.tasks) == (20, 250, "mail-3", ("send",))
        assert capacity(redis_url, prefix) == [{b"smail": b"5", b"pmail": b"63"}] * PARTITIONS
        await worker.heartbeat(START + 1, slots=20, queues=("mail", "reports"))
        assert capacity(redis_url, prefix) == [{b"smail": b"5", b"sreports": b"5"}] * PARTITIONS
        await worker.heartbeat(START + 2, lease=0)
        assert (await store.sessions(START + 2), capacity(redis_url, prefix)) == ([], [])
        assert await store.recover(START + 3) == []
    finally:
        await store.close()
