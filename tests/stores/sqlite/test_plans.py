"""The plans of the hot statements: none reads a whole table, whatever statistics say."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reprieve.core.rate import Rate
from reprieve.stores import sqlite as sqlite_store
from reprieve.stores.protocol import LimitUpdate
from reprieve.stores.sqlite import SqliteStore
from reprieve.stores.sqlite import update_limits as limits_of_file
from reprieve.stores.sqlite.statements import statements
from reprieve.testing.conformance.stage import PROGRAM, START, Worker, new_jobs, update_limits

LARGE = {"job", "ready", "delayed", "lane", "tenant", "limiter", "event", "finished", "ended", "unique_key", "result"}
HOT = ("enqueue", "claim", "settle", "finished", "lanes", "sessions", "jobs")
CLAIM, PARTS = statements("claim"), ("in_order", "released")
STATEMENTS = [(file, name) for file in HOT for name in statements(file) if name not in ("candidates", *PARTS)]
CANDIDATES = [CLAIM["candidates"].replace("{tenants}", CLAIM[part]) for part in PARTS]


def plan_of(connection: sqlite3.Connection, sql: str) -> list[str]:
    filled = sql.replace("{placeholders}", "1, 2, 3")
    if "{values}" in sql:
        width = max(int(number) for number in re.findall(r"column(\d+)", sql))
        filled = filled.replace("{values}", ", ".join(["(" + ", ".join("?" * width) + ")"] * 4))
    names = set(re.findall(r":(\w+)", filled))
    parameters: object = dict.fromkeys(names, 1) if names else [1] * filled.count("?")
    return [row[3] for row in connection.execute("explain query plan " + filled, parameters)]  # type: ignore[arg-type]


def scans(plan: list[str]) -> list[str]:
    """Return the steps that read a whole large table, by no index at all."""
    return [step for step in plan if (found := re.match(r"SCAN (\w+)$", step)) and _short(found[1]) in LARGE]


def _short(table: str) -> str:
    return table.removeprefix("reprieve_")


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path, durability="fast")
    worker = await Worker.open(store)
    await store.enqueue(
        [job for tenant in "abc" for job in new_jobs(store, 20, tenant=tenant, dependency="ses")], START
    )
    await worker.take(5)
    await store.close()
    return path


@pytest.mark.parametrize(("file", "name"), STATEMENTS)
def test_hot_statement_reads_no_whole_table(path: Path, file: str, name: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert scans(plan_of(connection, statements(file)[name])) == []


@pytest.mark.parametrize("sql", CANDIDATES)
def test_candidates_are_read_without_reading_all_tenants(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        plan = plan_of(connection, sql)
    assert scans(plan) == []
    assert not any("TEMP B-TREE" in step for step in plan), "the order comes from an index, or all candidates are read"


def test_lanes_of_one_pair_are_named_without_reading_all_lanes(path: Path) -> None:
    sql = statements("update_limits")
    with closing(sqlite3.connect(path)) as connection:
        for name in ("lanes_without_pair", "name_pairs", "count_lanes_of_pairs", "count_pair"):
            plan = plan_of(connection, sql[name])
            assert [step for step in plan if re.match(r"SCAN (lane|tenant|limiter)\b", step)] == []


async def _statements_of_an_update(path: Path, tenants: int) -> int:
    """Return how many statements hold every tenant, when so many have started jobs under the rate of a default."""
    store = SqliteStore(path, durability="fast")
    worker = await Worker.open(store)
    every = LimitUpdate(subject="tenant", name=None, rate=Rate(count=100, window=60.0))
    await update_limits(store, every)
    await store.enqueue([job for number in range(tenants) for job in new_jobs(store, 1, tenant=f"t{number}")], START)
    await worker.exactly(tenants)
    await store.close()
    ran: list[str] = []
    with closing(sqlite3.connect(path)) as connection:
        meters = connection.execute("select count(*) from reprieve_tenant where meter <> '[]'").fetchone()
        assert meters == (tenants,)
        connection.set_trace_callback(ran.append)
        limits_of_file.update_limits(connection, [LimitUpdate(subject="tenant", name=None, permits=0)], START, PROGRAM)
    return len(ran)


async def test_default_without_a_new_rate_takes_as_many_statements_however_many_tenants_there_are(
    tmp_path: Path,
) -> None:
    few, many = tmp_path / "few.db", tmp_path / "many.db"
    assert await _statements_of_an_update(many, 30) == await _statements_of_an_update(few, 3)


async def test_what_an_analyze_said_of_our_tables_is_forgotten(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table theirs (x)")
        connection.execute("create index theirs_x on theirs (x)")
        connection.execute("insert into theirs values (1)")
        connection.execute("analyze")
        connection.commit()
        await SqliteStore(path).close()
        tables = {table for (table,) in connection.execute("select tbl from sqlite_stat1")}
    assert tables == {"theirs"}


def test_no_statement_numbers_its_parameters() -> None:
    files = sorted(path.stem for path in (Path(sqlite_store.__file__).parent / "sql").glob("*.sql"))
    numbered = [(file, name) for file in files for name, sql in statements(file).items() if re.search(r"\?\d", sql)]
    assert numbered == [], "Python 3.12 warns of numbered parameters: name them"
