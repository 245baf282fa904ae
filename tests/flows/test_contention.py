"""Contention on one PostgreSQL: many processes on one tenant's queue, and transactions that stay open for long."""

from collections import Counter
from pathlib import Path

import psycopg

from reprieve.clock import ticks
from tests.flows.fleet import PATIENCE, Stage, Terms, calls, on_all_terms, play
from tests.flows.ground import in_a_schema
from tests.flows.workload import nap


def once(terms: Terms) -> Terms:
    """Play it once, whatever the terms are: it is long then."""
    return Terms(lease=terms.lease, heartbeat=terms.heartbeat, times=1)


def deadlocks(server: str) -> int:
    with psycopg.connect(server, autocommit=True) as admin:
        row = admin.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchone()
        return int(row[0]) if row else 0


async def keep_up(stage: Stage, count: int) -> None:
    """Let the workers come so far before there is more."""
    await stage.until(lambda: len(stage.finished()) > count, "they keep up", every=0.05)


@on_all_terms
async def test_eight_processes_share_one_queue_without_a_deadlock(
    tmp_path: Path, terms: Terms, postgres_url: str
) -> None:
    async def scene(stage: Stage) -> None:
        before = deadlocks(postgres_url)
        tree = stage.hire(processes=8, slots=4)
        await stage.until(lambda: len(tree.children()) == 8, "all children run")
        until = ticks() + (600.0 if terms.is_default else 3.0)
        ids: list[str] = []
        while ticks() < until:
            ids += await stage.enqueue(*calls(nap.using(tenant="ana"), 50, 0.02))
            await keep_up(stage, len(ids) - 100)
        await stage.until(lambda: len(stage.finished()) == len(ids), "all is done", PATIENCE)
        assert Counter(line.job for line in stage.began()) == Counter(ids)
        assert len({line.pid for line in stage.began()}) > 1
        assert deadlocks(postgres_url) == before
        assert tree.status() is None

    await play(scene, tmp_path, once(terms), lambda _: in_a_schema(postgres_url))


@on_all_terms
async def test_an_open_transaction_with_a_job_in_it_blocks_no_worker(
    tmp_path: Path, terms: Terms, postgres_url: str
) -> None:
    async def scene(stage: Stage) -> None:
        stage.hire(slots=8)
        async with (
            await psycopg.AsyncConnection.connect(postgres_url) as late,
            await psycopg.AsyncConnection.connect(postgres_url) as undone,
        ):
            committed = await stage.app.aenqueue(nap.using(tenant="ana", connection=late).call())
            await stage.app.aenqueue(nap.using(tenant="ana", connection=undone).call())
            until = ticks() + (60.0 if terms.is_default else 2.0)
            others: list[str] = []
            while ticks() < until:
                some = await stage.enqueue(*calls(nap.using(tenant="ana"), 20))
                await stage.succeeded(*some)
                others += some
            assert stage.began(committed.id) == []
            await undone.rollback()
            await late.commit()
        await stage.succeeded(committed.id)
        assert Counter(line.job for line in stage.began()) == Counter([*others, committed.id])

    await play(scene, tmp_path, once(terms), lambda _: in_a_schema(postgres_url))
