"""Relaying: every job arrives once, whichever relay dies, comes late or comes twice, and none keeps others waiting."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from reprieve.core.ids import id_to_bytes
from reprieve.errors import InvalidSetting, StoreFull
from reprieve.relay import BATCH, UNREADABLE, Relay
from reprieve.stores.capabilities import RelayTarget
from reprieve.testing import adrain
from tests.relay.shop import Database, Shop, in_a_schema
from tests.servers import postgres, redis

PATIENCE = 30.0
MINUTE = 60.0


async def until_arrived(shop: Shop, ids: list[str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while await shop.arrived() != sorted(ids):  # noqa: ASYNC110 - another task brings them
            await asyncio.sleep(0.02)


async def until_logged(lines: Sequence[Mapping[str, object]], event: str, times: int = 1) -> None:
    async with asyncio.timeout(PATIENCE):
        while sum(line["event"] == event for line in lines) < times:  # noqa: ASYNC110 - another task logs
            await asyncio.sleep(0.02)


async def land_and_die(shop: Shop) -> None:
    """Do what a relay does up to the moment when all has landed, and end without a word to the outbox."""
    app = shop.open_app()
    assert isinstance(app.store, RelayTarget)
    sink = app.store.outbox_sink()
    await sink.prepare()
    outbox = shop.outbox()
    entries = await outbox.take(BATCH)
    await sink.deliver([entry.job for entry in entries if entry.job is not None], app.clock.now())
    await outbox.close()


async def test_what_landed_before_its_relay_died_lands_once(shop: Shop) -> None:
    ids = shop.send(3)
    await land_and_die(shop)
    assert await shop.drain() == (3, 0)
    assert await shop.arrived() == sorted(ids)


@pytest.mark.parametrize("options", [{}, {"key": "k", "key_ttl": 0.001}], ids=["no key", "a short-lived key"])
async def test_a_repeat_after_the_job_has_ended_and_was_forgotten_makes_no_second_one(
    shop: Shop, options: dict[str, Any]
) -> None:
    shop.send(**options)
    await land_and_die(shop)
    assert (await adrain(shop.app)).succeeded == 1
    await shop.forget_all()
    assert await shop.arrived() == []
    assert await shop.drain() == (1, 0)
    assert await shop.arrived() == []


async def test_what_has_arrived_is_remembered_for_months_only_while_its_row_is_there(shop: Shop) -> None:
    (job_id,) = shop.send()
    await land_and_die(shop)
    assert shop.traces()[id_to_bytes(job_id)] > 80 * 86_400
    await shop.drain()
    assert shop.traces()[id_to_bytes(job_id)] < 2 * MINUTE


async def test_a_relay_that_runs_on_says_what_is_gone_with_the_next_batch(shop: Shop) -> None:
    relay = shop.relay()
    running = asyncio.create_task(relay.run())
    first = shop.send()
    await until_arrived(shop, first)
    second = shop.send()
    await until_arrived(shop, first + second)
    assert shop.traces()[id_to_bytes(first[0])] < 2 * MINUTE < shop.traces()[id_to_bytes(second[0])]
    relay.stop()
    await running
    assert max(shop.traces().values()) < 2 * MINUTE


async def test_jobs_arrive_in_batches_in_the_order_in_which_they_were_sent(shop: Shop) -> None:
    ids = shop.send(2 * BATCH + 7)
    seen: list[int] = []
    await shop.relay().drain(lambda done: seen.append(done.relayed))
    assert seen == [BATCH, 2 * BATCH, 2 * BATCH + 7]
    assert await shop.arrived() == sorted(ids)


async def test_a_commit_wakes_a_relay_that_waits(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprieve.relay.POLL_SECONDS", 10 * PATIENCE)
    relay = shop.relay()
    running = asyncio.create_task(relay.run())
    await until_arrived(shop, ids := shop.send())
    for _ in range(5):
        ids += await asyncio.to_thread(shop.send)
        await until_arrived(shop, ids)
    relay.stop()
    await running


async def test_several_relays_at_once_bring_every_job_once(shop: Shop) -> None:
    relays = [shop.relay() for _ in range(3)]
    running = [asyncio.create_task(relay.run()) for relay in relays]
    ids = []
    for _ in range(8):
        ids += await asyncio.to_thread(shop.send, 100)
    await until_arrived(shop, ids)
    async with asyncio.timeout(PATIENCE):
        while (await relays[0].look()).waiting:  # noqa: ASYNC110 - other tasks do it
            await asyncio.sleep(0.02)
    for relay in relays:
        relay.stop()
    done = [(await task).relayed for task in running]
    assert sum(done) >= len(ids)
    if "postgresql" in shop.database.url:
        # There they keep out of each other's way.
        assert sum(done) == len(ids)


async def test_a_job_that_the_store_refuses_stays_with_the_reason_and_keeps_no_other_waiting(shop: Shop) -> None:
    good = shop.send(2)
    with shop.database.transaction() as connection:
        large = shop.confirm.using(connection=connection).enqueue(10**100).id
    good += shop.send(2)
    with capture_logs() as lines:
        assert await shop.drain(largest_payload=50) == (4, 1)
    assert await shop.arrived() == sorted(good)
    contents = await shop.outbox().look()
    assert (contents.waiting, contents.refused) == (0, 1)
    assert contents.reason.startswith("payload_too_large: the payload of a confirm job has")
    assert [line["jobId"] for line in lines if line["event"] == "job refused"] == [large]
    assert await shop.drain(largest_payload=50) == (0, 0)
    assert await shop.relay().readmit() == 1
    assert await shop.drain() == (1, 0)
    assert await shop.arrived() == sorted([*good, large])


async def test_a_record_that_cannot_be_read_is_refused(shop: Shop) -> None:
    first, bad, last = shop.send(3)
    shop.database.spoil(bad)
    assert await shop.drain() == (2, 1)
    assert await shop.arrived() == sorted([first, last])
    assert (await shop.outbox().look()).reason == UNREADABLE


async def test_while_the_store_is_away_everything_waits_and_then_arrives(database: Database) -> None:
    # A server that writes down what it is told before it answers: one that is killed otherwise may forget.
    with redis.own(appendfsync="always") as server, capture_logs() as lines:
        shop = Shop(database, server.url)
        relay = shop.relay()
        running = asyncio.create_task(relay.run())
        ids = shop.send(3)
        await until_arrived(shop, ids)
        for outage in (1, 2):
            await asyncio.to_thread(server.kill)
            ids += await asyncio.to_thread(shop.send, 300)
            await until_logged(lines, "store unavailable", outage)
            await asyncio.to_thread(server.start)
            ids += await asyncio.to_thread(shop.send, 3)
            await until_arrived(shop, ids)
        relay.stop()
        assert (await running).relayed >= len(ids)
        assert (await relay.look()).waiting == 0
        await shop.close()
    said = [(line["event"], line.get("errorCode", "")) for line in lines if "store" in line["event"]]
    assert said == [("store unavailable", "store_unreachable"), ("store is back", "")] * 2


async def test_while_the_database_is_away_the_relay_waits_for_it(redis_url: str) -> None:
    with postgres.own() as server, in_a_schema(server.url) as database, capture_logs() as lines:
        shop = Shop(database, redis_url)
        relay = shop.relay()
        running = asyncio.create_task(relay.run())
        ids = shop.send(3)
        await until_arrived(shop, ids)
        await asyncio.to_thread(server.kill)
        await until_logged(lines, "store unavailable")
        await asyncio.to_thread(server.start)
        ids += await asyncio.to_thread(shop.send, 3)
        await until_arrived(shop, ids)
        relay.stop()
        await running
        await shop.close()
    said = [(line["event"], line["during"]) for line in lines if "store" in line["event"]]
    fetching = "fetching jobs out of the outbox"
    assert said == [("store unavailable", fetching), ("store is back", fetching)]


async def test_a_store_that_is_full_gets_the_rest_when_it_has_room(database: Database) -> None:
    with redis.own(maxmemory="8mb") as server, capture_logs() as lines, server.client() as admin:
        shop = Shop(database, server.url)
        ids = shop.send(BATCH)
        admin.config_set("maxmemory", "1mb")
        with pytest.raises(StoreFull):
            await shop.drain()
        relay = shop.relay()
        running = asyncio.create_task(relay.run())
        await until_logged(lines, "store unavailable")
        admin.config_set("maxmemory", "64mb")
        await until_arrived(shop, ids)
        relay.stop()
        await running
        await shop.close()
    # How much of 8 MB an empty server needs is its own affair: some say besides that they are nearly full.
    said = [line["event"] for line in lines if line["event"].startswith("store ")]
    assert said == ["store unavailable", "store is back"]
    assert {line.get("errorCode") for line in lines} <= {"store_full", None}


async def test_a_relay_is_for_stores_that_cannot_join_transactions(shop: Shop) -> None:
    app = shop.open_app("sqlite://:memory:")
    assert app.outbox is not None
    with pytest.raises(InvalidSetting, match="nothing to relay"):
        Relay(app.outbox, app.store, app.clock)
