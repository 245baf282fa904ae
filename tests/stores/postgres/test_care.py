"""Care for a schema: what is seen of it from outside, and migrations that can be run by hand."""

import psycopg

from reprieve.stores.care import Finding
from reprieve.stores.open import care_for
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.protocol import Filter
from reprieve.testing.conformance.stage import DAY, START, Worker, enqueue, fail, new_job
from tests.stores.postgres.recount import stored_ids


def levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.name: finding.level for finding in findings}


def test_schema_that_does_not_exist_yet_is_no_fault(url: str) -> None:
    care = care_for(url)
    assert levels(list(care.examine(START))) == {"server": "ok", "durability": "ok", "layout": "warn"}
    assert (care.layout().stored, care.layout().known) == (0, 1)


async def test_store_that_is_well_is_found_well(url: str, store: PostgresStore) -> None:
    await store.tally("status", Filter(), START)
    assert set(levels(list(care_for(url).examine(START))).values()) == {"ok"}
    assert care_for(url).layout().stored == 1


async def test_jobs_of_the_dead_and_clocks_ahead_are_seen(url: str, store: PostgresStore) -> None:
    await enqueue(store, new_job(store), new_job(store))
    worker = await Worker.open(store, lease=10.0)
    first, _ = await worker.exactly(2)
    await worker.settle(fail(first))
    assert levels(list(care_for(url).examine(START - DAY)))["events"] == "warn"
    (sessions,) = [finding for finding in care_for(url).examine(START + DAY) if finding.name == "sessions"]
    assert (sessions.level, sessions.seen) == ("warn", "0 alive, 1 dead with 1 jobs")


def test_server_that_is_down_is_bad_news() -> None:
    (finding,) = care_for("postgresql://ana:secret@127.0.0.1:9/jobs").examine(START)
    assert (finding.level, finding.fix[:19]) == ("bad", "check that it runs ")
    assert "secret" not in finding.seen + finding.fix


async def test_migrations_can_be_run_by_hand(url: str) -> None:
    care = care_for(url)
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        for step in care.migrations():
            admin.execute(step.sql)
    assert care.layout().stored == care.layout().known
    store = PostgresStore(url)
    job = new_job(store)
    await enqueue(store, job)
    await store.close()
    assert stored_ids(url) == {job.id}


def test_migrating_makes_the_schema_and_doing_it_again_changes_nothing(url: str) -> None:
    assert care_for(url).migrate().stored == 1
    assert care_for(url).migrate().stored == 1
