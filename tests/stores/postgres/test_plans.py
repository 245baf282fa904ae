"""The plans of the hot path: no statement of it, inside functions as well, reads a whole big table.

The server explains every statement that it runs (auto_explain), with the plans that it has really chosen.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
import pytest

from reprieve.core.change import Change, cancel
from reprieve.core.job import Job
from reprieve.stores.postgres import PostgresStore, enqueue, sessions, settle
from reprieve.stores.postgres.address import Address, address_of
from reprieve.stores.postgres.claim import claim
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.postgres.functions import functions
from reprieve.stores.postgres.lane_cache import KnownLanes, LaneCache
from reprieve.stores.postgres.pipeline import Pipeline
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.protocol import Claim, Heartbeat, LimitUpdate
from reprieve.testing.conformance.stage import ANOTHER, PROGRAM, START, Worker, fail, new_job, new_jobs, succeed
from tests.stores.postgres import test_growth

EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
}

BIG = set(test_growth.BIG) - {"session", "annotation"}
"""Tables that grow with the jobs and the tenants. Sessions are as many as workers, and annotations as running jobs."""

TENANTS = 2_000


class Plan(msgspec.Struct, rename={"text": "Query Text", "root": "Plan"}):
    """A statement that the server has run, and its plan."""

    text: str
    root: dict[str, Any]


def whole_reads(node: dict[str, Any], *, is_limited: bool = False) -> Iterator[str]:
    """Return the steps of a plan that read a big table from one end to the other."""
    is_limited = is_limited or node["Node Type"] == "Limit"
    if node.get("Relation Name") in BIG:
        kind = node["Node Type"]
        is_bounded = "Index Cond" in node or is_limited
        if not (kind in ("Tid Scan", "ModifyTable") or (kind.startswith("Index") and is_bounded)):
            yield f"{kind} of {node['Relation Name']} ({node.get('Index Name', 'no index')})"
    for child in node.get("Plans", ()):
        yield from whole_reads(child, is_limited=is_limited)


class Explained:
    """Runs work of a store in transactions, and keeps the plans of all statements."""

    def __init__(self, address: Address, connection: Any) -> None:  # noqa: ANN401 - as psycopg's own
        self._address = address
        self._pipeline = Pipeline(connection)
        self.plans: list[Plan] = []
        connection.add_notice_handler(self._note)

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        _, found, text = (notice.message_primary or "").partition("plan:\n")
        if found:
            self.plans.append(msgspec.json.decode(text.strip(), type=Plan))

    def run(self, work: Callable[[Tx], Any]) -> Any:  # noqa: ANN401 - whatever the work returns
        self._pipeline.begin()
        for statement in self._address.opening(self._pipeline.connection, "read write"):
            self._pipeline.send(statement)
        result = work(Tx(self._pipeline))
        self._pipeline.send("commit")
        self._pipeline.sync()
        self._pipeline.end()
        return result


@contextmanager
def explained(url: str) -> Iterator[Explained]:
    options = " ".join(f"-c {name}={value}" for name, value in EXPLAIN.items())
    address = address_of(f"{url}&options={quote(options)}")
    with address.connect() as connection:
        yield Explained(address, connection)


async def populate(url: str, *, is_analyzed: bool) -> None:
    """Fill a schema with jobs in every state, and let the planner know it, or believe that all tables are empty."""
    store = PostgresStore(url)
    await store.enqueue(new_jobs(store, 1), START)
    worker = await Worker.open(store)
    await worker.settle(succeed(await worker.one()))
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        admin.execute(f"set search_path = {url.partition('schema=')[2]}")
        for table in BIG:
            admin.execute(f"alter table {table} set (autovacuum_enabled = false)")
        admin.execute("analyze")
        names = [f"tenant-{number}" for number in range(TENANTS)]
        await store.enqueue([new_job(store, tenant=name, key=name) for name in names], START)
        await store.enqueue([new_job(store, tenant=name, due_at=START + 60_000) for name in names], START)
        while (await worker.ask(0)).next_at == START:
            continue  # a claim counts a thousand lanes
        for number in range(6):
            taken = await worker.take(100)
            await worker.settle(*(fail(job) if number % 2 else succeed(job) for job in taken))
        if is_analyzed:
            admin.execute("analyze")
    await store.close()


@pytest.mark.parametrize("is_analyzed", [True, False], ids=["known sizes", "sizes that the planner does not know"])
async def test_hot_path_reads_no_whole_table(url: str, is_analyzed: bool) -> None:
    await populate(url, is_analyzed=is_analyzed)
    store = PostgresStore(url)
    limit = LimitUpdate(subject="task", name="send", max_running=60)
    await store.update_limits([limit], START, PROGRAM)
    lock, lanes, number = ClaimLock(), LaneCache(KnownLanes()), 0
    with explained(url) as server:
        heartbeat = Heartbeat(session="explained", now=START, lease=600, slots=100, is_new=True)
        server.run(lambda tx: sessions.heartbeat(tx, lock, heartbeat))
        changes: tuple[Change, ...] = ()
        for now in (START, START + 60_000, START + 60_001):
            number += 1
            request = Claim(session="explained", number=number, queues=("default",), limit=50, now=now, changes=changes)
            claimed = server.run(partial(claim, lock=lock, lanes=lanes, request=request))
            assert claimed.jobs
            changes = tuple(fail(job) if place % 2 else succeed(job) for place, job in enumerate(claimed.jobs))
        more: list[Job] = [new_job(store, key="another"), new_job(store, due_at=START + 90_000)]
        statement = enqueue.statement(address_of(url).schema, is_own=True)
        server.run(lambda tx: tx.execute(statement, enqueue.parameters([new_job(store)], START)))
        server.run(lambda tx: tx.execute(statement, enqueue.parameters(more, START)))
        server.run(lambda tx: (lock.acquire(tx), settle.settle(tx, lanes, [cancel(more[0], ANOTHER, START)], START)))
        server.run(lambda tx: sessions.recover(tx, lock, lanes, START + 3_600_000, 10))
        plans = server.plans
    await store.close()
    assert {plan.text: steps for plan in plans if (steps := sorted(set(whole_reads(plan.root))))} == {}
    explained_functions = [name for name in functions() if any(functions()[name].name in plan.text for plan in plans)]
    assert {"begin_claim", "candidates", "take_jobs", "write_claim", "enqueue"} <= set(explained_functions)
    assert len({plan.text for plan in plans}) > 30
