"""The page about the claim names what exists; its numbers are those of the code, its trips those that are made."""

import ast
import re
import tempfile
import xml.etree.ElementTree as ET
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
import redis

from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.ids import partition_of
from reprieve.core.job import Job
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.claim import claim
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.postgres.connection import CONNECT_SECONDS
from reprieve.stores.postgres.functions import functions
from reprieve.stores.postgres.lane_cache import KnownLanes, LaneCache
from reprieve.stores.postgres.pool import ConnectionPool
from reprieve.stores.protocol import Claim, Claimed, Heartbeat, Store
from reprieve.stores.redis import RedisStore
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import START, new_jobs, succeed
from tests.docs.page import ROOT, code, table, text_of
from tests.servers import redis as servers
from tests.servers.postgres import drop_schema
from tests.stores.redis.test_fairness_matches_core import BATCHES, SITUATIONS

PAGE = text_of("docs/extend/claim.md")
PICTURE = ROOT / "docs/extend/pictures/claim.svg"
STORES = {"SQLite": "sqlite/", "PostgreSQL": "postgres/", "Redis": "redis/"}
SHARED = "core/"
REFERENCE = re.compile(r"`([\w/]+\.(?:py|sql|lua))(?:::([\w.]+))?`")
FOLDERS = (ROOT / "src/reprieve/stores", ROOT / "src/reprieve", ROOT)
MAX_FILES, MAX_WORDS = 8, 12
CLAIMS = 3
"""The first claims read lanes and prepare statements; the last is as all that follow."""


def path_of(file: str) -> Path | None:
    return next((folder / file for folder in FOLDERS if (folder / file).is_file()), None)


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the functions, methods, constants and statements of a file."""
    text = path.read_text("utf-8")
    if path.suffix == ".sql":
        return frozenset(re.findall(r"^-- name: (\w+)$", text, re.MULTILINE))
    if path.suffix == ".lua":
        return frozenset(re.findall(r"^(?:local )?(?:function )?(\w+)(?=\(| = )", text, re.MULTILINE))
    return frozenset(_python_names(ast.parse(text)))


def _python_names(tree: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.ClassDef():
                yield node.name
                yield from (f"{node.name}.{name}" for name in _python_names(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case _:
                pass


def constant(file: str, name: str) -> int:
    """Return the number that a file gives to a name."""
    path = path_of(file)
    assert path is not None
    found = re.search(rf"^(?:local )?{name}(?:: Final)? = ([\d_]+)", path.read_text("utf-8"), re.MULTILINE)
    assert found, f"{file} has no number called {name}"
    return int(found[1])


def files_to_read(store: str) -> list[str]:
    """Return the files of the numbered list of a store."""
    section = PAGE.partition("## What to read")[2].partition(f"**{store}**\n")[2].partition("\n**")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_every_file_and_function_that_is_named_exists() -> None:
    references = REFERENCE.findall(PAGE)
    assert len(references) > 60
    missing = []
    for file, name in references:
        path = path_of(file)
        if path is None or (name and name not in names_in(path)):
            missing.append(f"{file}::{name}")
    assert missing == []


@pytest.mark.parametrize("store", STORES)
def test_every_step_names_files_of_its_store_or_of_the_core(store: str) -> None:
    rows = table(PAGE, "step", *STORES)
    assert len(rows) > 8
    for row in rows:
        named = REFERENCE.findall(row[store])
        assert named, row["step"]
        assert all(file.startswith((STORES[store], SHARED)) for file, _ in named), row["step"]


@pytest.mark.parametrize("store", STORES)
def test_a_claim_is_followed_in_eight_files_at_most(store: str) -> None:
    files = files_to_read(store)
    assert 4 < len(files) <= MAX_FILES
    assert len(set(files)) == len(files)
    assert all(file.startswith((STORES[store], SHARED)) for file in files)
    named = {file for row in table(PAGE, "step", *STORES) for file, _ in REFERENCE.findall(row[store])}
    assert len(named & set(files)) >= len(files) // 2, "the files to read are those of the steps"


def test_the_outlines_that_are_named_exist() -> None:
    for name, file in (
        ("_QueueClaim.take", "sqlite/claim.py"),
        ("QueueClaim.take", "postgres/queue_claim.py"),
        ("claim_from_queue", "redis/lua/claim.lua"),
    ):
        path = path_of(file)
        assert f"`{name}`" in PAGE
        assert path is not None
        assert name in names_in(path)


def test_every_setting_of_the_choice_has_its_value() -> None:
    rows = table(PAGE, "setting", "value")
    assert {code(row["setting"])[0]: number(row["value"]) for row in rows} == msgspec.structs.asdict(DEFAULTS)


def test_every_number_of_a_store_has_its_value() -> None:
    rows = table(PAGE, "number", "value")
    assert len(rows) > 5
    for row in rows:
        file, _, name = code(row["number"])[0].partition("::")
        assert number(row["value"]) == constant(file, name), name


def test_numbers_in_sentences_are_those_of_the_code() -> None:
    assert f"leases {constant('redis/store.py', 'MAX_JOBS_PER_CLAIM')} jobs at most" in PAGE
    assert f"{BATCHES * SITUATIONS:,} drawn situations" in PAGE
    assert "limit 256\n" in functions()["candidates"].sql
    assert "from 256 on an index" in PAGE
    assert "same number" in next(row["meaning"] for row in table(PAGE, "number") if "MIN_PROMOTED" in row["number"])
    promoted = constant("postgres/claim.py", "MIN_PROMOTED_JOBS")
    assert constant("redis/lua/claim.lua", "MIN_PROMOTED") == promoted
    assert f"max({promoted}, 2 * limit)" in text_of("src/reprieve/stores/sqlite/claim.py")


def test_a_reader_needs_twelve_words_at_most() -> None:
    words = PAGE.partition("## Twelve words")[2]
    assert len(table(words, "word", "meaning")) <= MAX_WORDS


def test_the_picture_is_drawn_for_light_and_dark_pages_and_says_what_it_shows() -> None:
    text = PICTURE.read_text("utf-8")
    root = ET.fromstring(text)  # noqa: S314 - our own picture
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert {"title", "desc"} <= tags
    assert "prefers-color-scheme: dark" in text
    assert "three round trips" in text
    assert f"after {CONNECT_SECONDS // 2} s" in text


@asynccontextmanager
async def filled(store: Store) -> AsyncIterator[Store]:
    """Close a store in the end that has a session and enough jobs for some claims."""
    try:
        await store.enqueue(new_jobs(store, 5 * CLAIMS), START)
        await store.heartbeat(Heartbeat(session="one", now=START, lease=60, slots=10, is_new=True))
        yield store
    finally:
        await store.close()


def request(call: int, jobs: tuple[Job, ...] = ()) -> Claim:
    """Settle the jobs of the claim before, and ask for more."""
    changes = tuple(map(succeed, jobs))
    return Claim(session="one", number=call, now=START, queues=("default",), limit=5, changes=changes)


async def test_a_claim_on_sqlite_is_one_transaction() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with filled(store := SqliteStore(Path(folder) / "jobs.db")):
            first = await store.claim(request(1))
            statements: list[str] = []
            store.submit(lambda tx: tx.set_trace_callback(statements.append)).result()
            second = await store.claim(request(2, first.jobs))
            store.submit(lambda tx: tx.set_trace_callback(None)).result()
    assert second.results == ("applied",) * 5
    assert len(second.jobs) == 5
    of_claim = statements[statements.index("begin immediate") :]
    of_claim = of_claim[: of_claim.index("commit") + 1]
    assert sum("reprieve_lease" in statement for statement in of_claim) >= 2, "it settles and leases in between"
    assert "begin immediate" not in of_claim[1:]


async def test_a_claim_on_postgresql_is_three_round_trips(postgres_url: str, tmp_path: Path) -> None:
    schema = f"test_{uuid4().hex[:12]}"
    url, log = f"{postgres_url}?schema={schema}", tmp_path / "trace"
    pool, lock, lanes = ConnectionPool(address_of(url)), ClaimLock(), LaneCache(KnownLanes())

    def call(number: int, jobs: tuple[Job, ...]) -> Claimed:
        return pool.run_here(lambda tx: claim(tx, lock, lanes, request(number, jobs)))

    with log.open("wb") as file:
        async with filled(PostgresStore(url)):
            jobs: tuple[Job, ...] = ()
            for number in range(1, CLAIMS):
                jobs = call(number, jobs).jobs
            connection = pool.run_here(lambda tx: tx.connection.pgconn)
            connection.trace(file.fileno())
            claimed = call(CLAIMS, jobs)
            connection.untrace()
            pool.close()
    drop_schema(postgres_url, schema)
    assert claimed.results == ("applied",) * 5
    assert len(claimed.jobs) == 5
    assert _trips(log.read_text("utf-8")) == 3
    assert "three round trips, one transaction" in PAGE


def _trips(trace: str) -> int:
    """Return how many round trips a trace of libpq shows: how often a response was needed before the next statement."""
    trips, sent = 0, deque[int]()
    for line in trace.splitlines():
        _, direction, _, message, *_ = line.split("\t")
        if (direction, message) == ("F", "Execute"):
            sent.append(trips)
        elif (direction, message) == ("B", "CommandComplete"):
            trips = max(trips, sent.popleft() + 1)
    assert not sent, "every statement was responded to"
    return trips


@pytest.mark.parametrize("partitions", [1, 4])
async def test_a_claim_on_redis_is_one_script_for_each_partition(partitions: int) -> None:
    with servers.own() as server, server.client() as client:
        async with filled(store := RedisStore(f"{server.url}?partitions={partitions}")):
            first = await store.claim(request(1))
            client.config_resetstat()
            await store.claim(msgspec.structs.replace(request(2, first.jobs), limit=0))
            settled = _scripts(client)
            client.config_resetstat()
            second = await store.claim(msgspec.structs.replace(request(3), limit=100))
            assert _scripts(client) == partitions
    assert settled == len({partition_of(job.id) for job in first.jobs})
    assert len(second.jobs) == 5 * CLAIMS - 5


def _scripts(client: redis.Redis) -> int:
    """Return how many scripts the server has run since its statistics were reset."""
    return int(client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])
