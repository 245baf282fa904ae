"""Diagnostics of a schema, and migrations that can be run by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from reprieve import clock
from reprieve.errors import StoreReadOnly
from reprieve.stores.diagnostics import Finding
from reprieve.stores.open import diagnostics_for
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.functions import with_hashed_names
from reprieve.stores.protocol import Filter, Retention
from reprieve.testing.conformance.stage import DAY, START, Worker, enqueue, fail, kill, new_job, succeed
from tests.stores.postgres.recount import stored_ids


def levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.name: finding.level for finding in findings}


def test_schema_that_does_not_exist_yet_is_no_fault(url: str) -> None:
    care = diagnostics_for(url)
    found = levels(list(care.examine(clock.now())))
    assert {name for name, level in found.items() if level != "ok"} == {"schema"}
    assert (care.schema_version().stored, care.schema_version().known) == (0, 1)


async def test_store_that_is_well_is_found_well(url: str, store: PostgresStore) -> None:
    await store.tally("status", Filter(), START)
    found = levels(list(diagnostics_for(url).examine(clock.now())))
    assert set(found.values()) == {"ok"}
    assert {
        "server",
        "way",
        "durability",
        "skew",
        "autovacuum",
        "connections",
        "functions",
        "rights",
        "indexes",
    } < found.keys()
    assert diagnostics_for(url).schema_version().stored == 1


async def test_jobs_of_the_dead_and_clocks_ahead_are_seen(url: str, store: PostgresStore) -> None:
    await enqueue(store, new_job(store), new_job(store))
    worker = await Worker.open(store, lease=10.0)
    first, _ = await worker.exactly(2)
    await worker.settle(fail(first))
    assert levels(list(diagnostics_for(url).examine(START - DAY)))["events"] == "warn"
    (sessions,) = [finding for finding in diagnostics_for(url).examine(START + DAY) if finding.name == "sessions"]
    assert (sessions.level, sessions.seen) == ("warn", "0 alive, 1 dead with 1 jobs")


def test_server_that_is_down_is_bad_news() -> None:
    (finding,) = diagnostics_for("postgresql://ana:secret@127.0.0.1:9/jobs").examine(START)
    assert (finding.level, finding.fix[:18]) == ("bad", "check that it runs")
    assert "secret" not in finding.seen + finding.fix


async def test_migrations_can_be_run_by_hand(url: str) -> None:
    care = diagnostics_for(url)
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        for step in care.migrations():
            admin.execute(step.sql)
    assert care.schema_version().stored == care.schema_version().known
    store = PostgresStore(url)
    job = new_job(store)
    await enqueue(store, job)
    await store.close()
    assert stored_ids(url) == {job.id}


def test_migrating_makes_the_schema_and_doing_it_again_changes_nothing(url: str) -> None:
    assert diagnostics_for(url).migrate().stored == 1
    assert diagnostics_for(url).migrate().stored == 1


@contextmanager
def changed(url: str, *statements: str) -> Iterator[None]:
    """Change the schema as its owner."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        admin.execute(f"set search_path = {schema_of(url)}")
        for statement in statements:
            admin.execute(with_hashed_names(statement))
        yield


def schema_of(url: str) -> str:
    return url.partition("schema=")[2]


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl()


@pytest.mark.parametrize(
    ("statement", "name", "level", "fix"),
    [
        ("drop index job_fresh", "indexes", "bad", "reprieve migrate sql"),
        ("alter table job set (autovacuum_enabled = false)", "autovacuum", "warn", "reset (autovacuum_enabled)"),
    ],
)
def test_what_a_person_changed_is_seen(url: str, statement: str, name: str, level: str, fix: str) -> None:
    diagnostics_for(url).migrate()
    with changed(url, statement):
        (found,) = [finding for finding in diagnostics_for(url).examine(clock.now()) if finding.name == name]
    assert found.level == level
    assert fix in found.fix


def test_transaction_that_is_open_for_long_is_seen(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprieve.stores.postgres.diagnostics.MAX_TRANSACTION_SECONDS", 0)
    diagnostics_for(url).migrate()
    with psycopg.connect(url.partition("?")[0]) as reader:
        reader.execute("select 1")
        (found,) = [finding for finding in diagnostics_for(url).examine(clock.now()) if finding.name == "transactions"]
    assert (found.level, found.fix[:6]) == ("warn", "end it")


def test_clock_that_is_wrong_is_seen(url: str) -> None:
    (found,) = [finding for finding in diagnostics_for(url).examine(clock.now() + DAY) if finding.name == "skew"]
    assert found.level == "warn"


GRANTS = (
    "create role {role} login",
    "grant usage on schema {schema} to {role}",
    "grant select, insert, update, delete on all tables in schema {schema} to {role}",
    "revoke insert, update, delete on {schema}.schema_version from {role}",
    "grant usage on all sequences in schema {schema} to {role}",
    "grant execute on all functions in schema {schema} to {role}",
)
"""The least that a role needs, as docs/reference/postgres.md says."""


@pytest.fixture
def role(url: str) -> Iterator[str]:
    """Return a role that has no rights yet."""
    name = f"role_{schema_of(url)}"
    yield name
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        admin.execute(f"drop owned by {name}")
        admin.execute(f"drop role {name}")


def grants(url: str, role: str) -> list[str]:
    return [statement.format(role=role, schema=schema_of(url)) for statement in GRANTS]


async def test_role_with_the_least_rights_does_all_work(url: str, role: str) -> None:
    diagnostics_for(url).migrate()
    with changed(url, *grants(url, role)):
        store = PostgresStore(as_role(url, role))
        await enqueue(store, new_job(store, key="k"), new_job(store, due_at=START + 5))
        worker = await Worker.open(store)
        await worker.settle(fail(await worker.one()))
        await store.prune(Retention(now=START))
        await store.close()
        assert levels(list(diagnostics_for(as_role(url, role)).examine(clock.now())))["rights"] == "ok"


@pytest.mark.parametrize("call", ["drop_event_day(9223372036854775807)", "create_event_days(1700000000000, 50)"])
def test_role_that_may_only_look_changes_no_history(url: str, role: str, call: str) -> None:
    diagnostics_for(url).migrate()
    with changed(url, *grants(url, role)[:2], f"grant select on all tables in schema {schema_of(url)} to {role}"):
        before = days(url)
        with (
            psycopg.connect(as_role(url, role).partition("?")[0], autocommit=True) as reader,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            reader.execute(with_hashed_names(f"select {schema_of(url)}.{call}"))
        assert days(url) == before
        (found,) = [
            finding for finding in diagnostics_for(as_role(url, role)).examine(clock.now()) if finding.name == "rights"
        ]
        assert {"create_event_days", "drop_event_day", "job"} <= set(found.seen.split("with ")[1].split(", "))


def test_days_are_made_and_dropped_only_by_the_clock_of_the_server(url: str) -> None:
    diagnostics_for(url).migrate()
    before = days(url)
    assert len(before) == 4
    with changed(url, "select create_event_days(9223372036854775807, 1000000)"):
        assert len(days(url)) <= len(before) + 7
    with changed(url, *["select drop_event_day(9223372036854775807)"] * 9):
        assert set(before) <= set(days(url))


def test_what_the_owner_does_for_others_touches_no_table_of_theirs(url: str, role: str) -> None:
    diagnostics_for(url).migrate()
    with (
        changed(url, *grants(url, role)),
        psycopg.connect(as_role(url, role).partition("?")[0], autocommit=True) as worker,
    ):
        worker.execute("create temp table event (at int8) partition by range (at)")
        worker.execute("create temp table event_1 partition of event for values from (0) to (10)")
        worker.execute(with_hashed_names(f"select {schema_of(url)}.drop_event_day(9223372036854775807)"))
        assert worker.execute("select to_regclass('pg_temp.event_1') is not null").fetchone() == (True,)


async def test_rights_that_are_missing_are_named(url: str, role: str) -> None:
    diagnostics_for(url).migrate()
    with changed(url, *grants(url, role), f"revoke delete on {schema_of(url)}.job from {role}"):
        (found,) = [
            finding for finding in diagnostics_for(as_role(url, role)).examine(clock.now()) if finding.name == "rights"
        ]
        assert (found.level, found.seen) == ("bad", f"{role} may not work with job")
        store = PostgresStore(as_role(url, role))
        await enqueue(store, new_job(store))
        worker = await Worker.open(store)
        with pytest.raises(StoreReadOnly, match="the user may not do this; grant it the rights"):
            await worker.settle(succeed(await worker.one()))
        await store.close()


async def test_days_of_history_are_prepared_and_forgotten_whole(url: str, store: PostgresStore) -> None:
    await store.prune(Retention(now=START))
    for day in (1, 2):
        now = START + day * DAY
        await store.enqueue([new_job(store)], now)
        worker = await Worker.open(store, f"worker-{day}", at=now)
        await worker.settle(kill(await worker.one(at=now), at=now), at=now)
        await store.prune(Retention(now=now))
    assert len(days(url)) == 4 + 5
    assert len(await store.events()) == 2
    pruned = await store.prune(Retention(now=START + 9 * DAY))
    assert pruned.events == 2, "that of the job, and the notice of the session"
    assert len(await store.events()) == 1


def days(url: str) -> list[str]:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        rows = admin.execute(
            "select inhrelid::regclass::text from pg_inherits where inhparent = %s::regclass",
            [f"{schema_of(url)}.event"],
        )
        return [name for (name,) in rows if not name.endswith("event_other")]


async def test_status_of_the_schema_counts_functions_that_are_missing(store: PostgresStore, url: str) -> None:
    await store.enqueue([new_job(store)], START)
    diagnostics = diagnostics_for(url)
    assert diagnostics.schema_version().is_current
    server, _, schema = url.partition("?schema=")
    with psycopg.connect(server, autocommit=True) as admin:
        for function in ("promote_due", "take_jobs"):
            name = with_hashed_names(f"{function}()").removesuffix("()")
            admin.execute(f"drop function {schema}.{name}")
    found = diagnostics.schema_version()
    assert (found.missing_functions, found.is_current) == (2, False)
    assert diagnostics.migrate().is_current
