"""A replica takes no jobs, and a client that came to one finds the primary as soon as the address leads there."""

import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from reprieve import clock
from reprieve.errors import StoreReadOnly
from reprieve.stores.diagnostics import Finding
from reprieve.stores.open import diagnostics_for
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.protocol import Filter
from reprieve.testing.conformance.stage import START, Worker, new_job
from tests.servers import postgres, proxy


@pytest.fixture(scope="module")
def primary() -> Iterator[postgres.Server]:
    with postgres.own() as server:
        diagnostics_for(server.url).migrate()
        yield server


@pytest.fixture(scope="module")
def replica(primary: postgres.Server) -> Iterator[postgres.Server]:
    with postgres.own(primary) as server:
        yield server


async def test_client_of_a_replica_goes_on_when_its_address_leads_to_the_primary(
    primary: postgres.Server, replica: postgres.Server
) -> None:
    async with proxy.running(replica.url) as way:
        store = PostgresStore(f"{way.url}?target_session_attrs=any")
        try:
            await store.tally("status", Filter(), START)
            with pytest.raises(StoreReadOnly, match="name the primary server"):
                await Worker.open(store)
            with pytest.raises(StoreReadOnly, match="name the primary server"):
                await store.enqueue([new_job(store)], START)
            way.lead_to(primary.url)
            worker = await Worker.open(store)
            job = new_job(store)
            assert await store.enqueue([job], START) == [job.id]
            assert (await worker.one()).id == job.id
        finally:
            await store.close()


async def test_replica_is_not_connected_to(replica: postgres.Server) -> None:
    store = PostgresStore(replica.url)
    try:
        with pytest.raises(StoreReadOnly, match="name the primary server"):
            await store.tally("status", Filter(), START)
    finally:
        await store.close()
    (found,) = diagnostics_for(replica.url).examine(clock.now())
    assert (found.level, found.fix[:23]) == ("bad", "name the primary server")
    found = next(diagnostics_for(f"{replica.url}?target_session_attrs=any").examine(clock.now()))
    assert (found.level, found.fix[:23]) == ("bad", "name the primary server")


async def test_primary_is_found_among_several(primary: postgres.Server, replica: postgres.Server) -> None:
    hosts = ",".join(urlsplit(server.url).netloc.rpartition("@")[2] for server in (replica, primary))
    store = PostgresStore(f"postgresql://reprieve@{hosts}/postgres")
    try:
        job = new_job(store, queue="elsewhere")
        assert await store.enqueue([job], START) == [job.id]
    finally:
        await store.close()


@pytest.fixture
def slot(primary: postgres.Server, replica: postgres.Server) -> Iterator[str]:
    """Have the replica say what it reads, and the primary remember it in a slot."""
    name = "remembers"
    with psycopg.connect(primary.url, autocommit=True) as admin:
        admin.execute("select pg_create_physical_replication_slot(%s)", [name])
        with psycopg.connect(replica.url, autocommit=True) as theirs:
            for setting, value in (("primary_slot_name", name), ("hot_standby_feedback", "on")):
                theirs.execute(f"alter system set {setting} = '{value}'")
            theirs.execute("select pg_reload_conf()")
            for _ in range(1_000):
                seen = admin.execute("select xmin from pg_replication_slots where slot_name = %s", [name]).fetchone()
                if seen != (None,):
                    break
                threading.Event().wait(0.02)
            yield name
            for setting in ("primary_slot_name", "hot_standby_feedback"):
                theirs.execute(f"alter system reset {setting}")
            theirs.execute("select pg_reload_conf()")
        gone = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active"
        while not admin.execute(gone).fetchall():
            threading.Event().wait(0.02)


def test_slot_of_a_replica_that_is_far_behind_is_seen(
    primary: postgres.Server, slot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transactions() -> Finding:
        (found,) = [one for one in diagnostics_for(primary.url).examine(clock.now()) if one.name == "transactions"]
        return found

    assert transactions().level == "ok"
    monkeypatch.setattr("reprieve.stores.postgres.diagnostics.MAX_REPLICA_LAG_TRANSACTIONS", 0)
    found = transactions()
    assert (found.level, found.fix[:15]) == ("warn", "let it catch up")
    assert slot in found.seen or "walreceiver" in found.seen
