"""Two releases on one schema: each has its own functions, which stay while a session or a process uses them."""

import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import psycopg
import pytest

from reprieve.clock import ticks
from reprieve.errors import ForeignStore, StoreRefused
from reprieve.stores.open import diagnostics_for
from reprieve.stores.postgres import PostgresStore, pool, schema
from reprieve.stores.postgres.functions import functions, resolve
from reprieve.testing.conformance.stage import START, Worker, enqueue, new_job, new_jobs, succeed
from tests.conformance.planting import Bug, copies
from tests.stores.postgres.recount import complaints

CHANGE = Bug(
    "another release",
    "functions/take_jobs.sql",
    "from picked as p order by p.lane, coalesce(p.ready_at, ready_at(null, p.id)), p.id;",
    "from picked as p where p.version >= 0 order by p.lane, p.id;",
    "",
)
"""Its function take_jobs has another body; all others are the same."""

OURS = functions()["take_jobs"].name


class Release:
    """A copy of the package whose functions differ."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.take_jobs: str = self.module("functions").functions()["take_jobs"].name

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self._name}.{name}")

    def open(self, url: str) -> PostgresStore:
        store: PostgresStore = self.module("store").PostgresStore(url)
        return store

    def set_grace(self, seconds: int) -> None:
        vars(self.module("schema"))["GRACE_SECONDS"] = seconds

    def migrate(self, url: str) -> None:
        self.module("schema").migrate(self.module("address").address_of(url))


@pytest.fixture
async def other(url: str, tmp_path: Path) -> AsyncIterator[Release]:
    """Return another release, for which there is no grace period."""
    with copies(tmp_path, "postgres", lambda package: package.PostgresStore(url)) as make:
        store = await make(CHANGE)()
        await store.close()
        release = Release(type(store).__module__.partition(".")[0])
        release.set_grace(0)
        yield release


def stored_functions(url: str) -> set[str]:
    server, _, name = url.partition("?schema=")
    with psycopg.connect(server, autocommit=True) as admin:
        rows = admin.execute("select proname from pg_proc where pronamespace = %s::regnamespace", [name])
        return {proname for (proname,) in rows}


def execute(url: str, statement: str) -> None:
    server, _, name = url.partition("?schema=")
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"set search_path = {name}")
        admin.execute(statement)


async def test_two_releases_work_side_by_side_until_the_last_session_of_one_ends(url: str, other: Release) -> None:
    old, new = PostgresStore(url), other.open(url)
    jobs = [*new_jobs(old, 20), *new_jobs(new, 20)]
    await enqueue(old, *jobs[:20])
    await enqueue(new, *jobs[20:])
    workers = [await Worker.open(old, "old"), await Worker.open(new, "new")]
    assert other.take_jobs != OURS
    assert {OURS, other.take_jobs} <= stored_functions(url)

    taken: list[str] = []
    for number in range(8):
        claimed = await workers[number % 2].exactly(5)
        taken += [job.id for job in claimed]
        other.migrate(url)  # which drops nothing that the session of the old release calls
        await workers[number % 2].settle(*map(succeed, claimed))
    assert sorted(taken) == sorted(job.id for job in jobs)
    assert {OURS, other.take_jobs} <= stored_functions(url)

    await workers[0].heartbeat(lease=0)
    other.migrate(url)
    assert OURS not in stored_functions(url)
    kept = {function.name for name, function in functions().items() if name != "take_jobs"}
    assert kept | {other.take_jobs} == stored_functions(url)
    await enqueue(new, new_job(new))
    await workers[1].settle(succeed(await workers[1].one()))
    await old.close()
    await new.close()
    assert complaints(url) == []


async def test_functions_of_a_release_without_sessions_stay_for_the_grace_period(url: str, other: Release) -> None:
    producer = PostgresStore(url)
    await enqueue(producer, new_job(producer))
    other.set_grace(schema.GRACE_SECONDS)
    other.migrate(url)
    assert OURS in stored_functions(url)
    execute(url, "update release set used_at = used_at - interval '8 days'")
    other.migrate(url)
    assert OURS not in stored_functions(url)
    await producer.close()


async def test_process_that_uses_the_store_for_long_notes_it_and_creates_what_is_missing(
    url: str, other: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(url)
    worker = await Worker.open(store)
    await enqueue(store, new_job(store))
    execute(url, "update session set is_dead = true")
    execute(url, "update release set used_at = used_at - interval '8 days'")
    other.migrate(url)
    assert OURS not in stored_functions(url)
    execute(url, "update session set is_dead = false")
    with pytest.raises(ForeignStore, match="lacks a function of this release; run reprieve migrate up"):
        await worker.one()
    monkeypatch.setattr(pool, "ticks", an_hour_later)
    await worker.settle(succeed(await worker.one()))
    await store.close()
    assert OURS in stored_functions(url)


def an_hour_later() -> float:
    return ticks() + pool.PREPARE_AGAIN_SECONDS


async def test_process_that_cannot_check_the_schema_again_goes_on(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(url)
    await enqueue(store, new_job(store))
    execute(url, "update schema_version set checksum = 'another ' || checksum")
    monkeypatch.setattr(pool, "ticks", an_hour_later)
    worker = await Worker.open(store)
    await worker.one()
    await store.close()
    assert "cannot check the schema again: schema version 1 is not the one" in caplog.text
    execute(url, "update schema_version set checksum = substr(checksum, 9)")


async def test_release_is_migrated_by_the_owner_alone(url: str) -> None:
    diagnostics_for(url).migrate()
    role = f"role_{url.partition('schema=')[2]}"
    execute(url, f"create role {role} login")
    execute(url, f"grant all on schema {url.partition('schema=')[2]} to {role}")
    execute(url, f"grant select on schema_version to {role}")
    execute(url, f"drop function {OURS}")
    try:
        store = PostgresStore(url.replace("reprieve@", f"{role}@"))
        with pytest.raises(StoreRefused, match="run reprieve migrate up as the owner"):
            await store.enqueue([new_job(store)], START)
        await store.close()
    finally:
        execute(url, f"drop owned by {role}")
        execute(url, f"drop role {role}")
    (found,) = [finding for finding in diagnostics_for(url).examine(START) if finding.name == "functions"]
    assert (found.level, found.seen) == ("bad", "this release lacks take_jobs")
    diagnostics_for(url).migrate()
    assert OURS in stored_functions(url)


def test_name_of_a_function_carries_what_it_does_and_calls() -> None:
    texts = {
        "inner_one": "-- Says what it does.\ncreate function inner_one() returns int8 as $$ 1 $$",
        "outer_one": "create function outer_one() returns int8 as $$ inner_one() $$",
    }
    ours = resolve(texts)
    assert ours["outer_one"].sql == (
        f"create function {ours['outer_one'].name}() returns int8 as $$ {ours['inner_one'].name}() $$"
    )
    commented = resolve(texts | {"inner_one": texts["inner_one"].replace("Says what", "Says otherwise what")})
    assert commented == ours
    changed = resolve(texts | {"inner_one": texts["inner_one"].replace("1", "2")})
    assert changed["inner_one"].name != ours["inner_one"].name
    assert changed["outer_one"].name != ours["outer_one"].name
    circle = texts | {"inner_one": "create function inner_one() returns int8 as $$ outer_one() $$"}
    with pytest.raises(ValueError, match="call each other in a circle"):
        resolve(circle)


def test_every_function_says_what_it_is_and_is_called() -> None:
    folder = Path(schema.__file__).parent
    statements = "".join(file.read_text("utf-8") for file in (folder / "sql").glob("*.sql"))
    for file in (folder / "functions").glob("*.sql"):
        text = file.read_text("utf-8")
        header = text[: text.index("create function")]
        assert header.startswith("-- "), file.name
        assert any(word in header for word in ("Reads", "Writes", "Creates", "Drops", "Inserts")), file.name
        assert f"create function {file.stem}(" in text
        others = "".join(other.read_text("utf-8") for other in (folder / "functions").glob("*.sql") if other != file)
        assert f"{file.stem}(" in statements + others, f"{file.name} is never called"
