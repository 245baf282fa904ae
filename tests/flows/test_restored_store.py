"""A store restored to an earlier state under a running worker: what runs is recognised, and nothing stays leased."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import psycopg
import redis
from msgspec.structs import replace

from reprieve import JobHandle, Reprieve
from reprieve.call import Call
from reprieve.stores.protocol import Claim, Claimed, Filter, LimitUpdate, Store
from reprieve.testing import FaultyStore
from reprieve.testing.conformance.stage import PROGRAM
from reprieve.worker.worker import Worker
from tests.flows.fleet import PATIENCE, Stage, Tree, calls, flow
from tests.flows.ground import File, Ground, Keys, Schema
from tests.flows.working import working
from tests.flows.workload import nap, stay

Restore = Callable[[], None]


def save_file(path: str) -> Restore:
    """Copy a database, and restore it as `.restore` of the command line does: in a transaction, into the same file."""
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    with closing(sqlite3.connect(path)) as live:
        live.backup(copy)

    def restore() -> None:
        with closing(copy), closing(sqlite3.connect(path, timeout=30)) as live:
            copy.backup(live)

    return restore


def save_schema(server: str, schema: str) -> Restore:
    """Copy the rows of a schema, and put them back in one transaction."""
    with psycopg.connect(server) as admin:
        admin.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        admin.execute(f"set search_path = {schema}")
        columns = (
            "select relname, string_agg(quote_ident(attname), ', ') "
            "from pg_class join pg_attribute on attrelid = pg_class.oid where relkind = 'r' "
            "and relnamespace = %s::regnamespace and attnum > 0 and attgenerated = '' group by 1"
        )
        tables: dict[str, str] = dict(admin.execute(columns, [schema]).fetchall())
        rows = {table: admin.execute(f"select {names} from {table}").fetchall() for table, names in tables.items()}  # noqa: S608 - our own tables

    def restore() -> None:
        with psycopg.connect(server) as admin:
            admin.execute(f"set search_path = {schema}")
            admin.execute(f"lock table {', '.join(tables)} in access exclusive mode")
            for table in tables:
                admin.execute(f"delete from {table}")  # noqa: S608 - our own tables
            for table, found in rows.items():
                for row in found:
                    values = f"overriding system value values ({', '.join(['%s'] * len(row))})"
                    admin.execute(f"insert into {table} ({tables[table]}) {values}", row)

    return restore


def save_keys(url: str) -> Restore:
    """Copy all keys of a server, and put them back in one transaction."""
    with closing(redis.Redis.from_url(url)) as client:
        saved = {key: (max(0, client.pttl(key)), client.dump(key)) for key in client.scan_iter(count=1_000)}

    def restore() -> None:
        with closing(redis.Redis.from_url(url)) as client:
            pipeline = client.pipeline(transaction=True)
            pipeline.flushdb()
            for key, (ttl, value) in saved.items():
                if value is not None:
                    pipeline.restore(key, ttl, value)
            pipeline.execute()

    return restore


def save(ground: Ground) -> Restore:
    """Save a store as it is now; return how to restore it."""
    if isinstance(ground, File):
        return save_file(ground.url.removeprefix("sqlite:///"))
    if isinstance(ground, Schema):
        return save_schema(ground.url.partition("?")[0], ground.name)
    assert isinstance(ground, Keys)
    return save_keys(ground.url)


async def is_nothing_held(stage: Stage) -> bool:
    page = await stage.app.store.find(Filter(statuses=frozenset({"running"})), stage.app.clock.now())
    return not page.jobs


async def work_on(stage: Stage, slots: int) -> None:
    """Check that all slots of the worker can be used at once, and are free afterwards."""
    wanted = await stage.enqueue(*calls(stay, slots, stage.mark("more")))
    await stage.running(*wanted)
    stage.release("more")
    await stage.succeeded(*wanted)
    await stage.until(lambda: is_nothing_held(stage), "nothing is held")


async def let_run(stage: Stage, permits: int | None) -> None:
    """Let so many jobs of the queue run at once; None: any number."""
    update = LimitUpdate(subject="queue", name="default", permits=permits)
    await stage.app.store.update_limits([update], stage.app.clock.now(), PROGRAM)


async def save_waiting(stage: Stage, call: Call[None]) -> tuple[str, Restore]:
    """Enqueue a job, save the store before the job is leased, and wait until it runs; how to restore the store.

    The queue is held when the store is saved, so what the machine has to do besides makes no difference.
    """
    await let_run(stage, 0)
    job_id = await stage.enqueue_one(call)
    restore = await asyncio.to_thread(save, stage.ground)
    await let_run(stage, None)
    await stage.running(job_id)
    return job_id, restore


def hire(stage: Stage, slots: int) -> Tree:
    """Start a worker whose session outlasts the time between saving and restoring."""
    return stage.hire(slots=slots, lease=PATIENCE)


@flow
async def test_a_job_that_a_restored_store_leases_again_runs_once(stage: Stage) -> None:
    tree = hire(stage, 2)
    await stage.succeeded(*await stage.enqueue(*calls(nap, 2)))
    job_id, restore = await save_waiting(stage, stay.call(stage.mark("end")))
    await asyncio.to_thread(restore)
    await let_run(stage, None)
    await stage.until(lambda: tree.said("job leased again"), "the job is leased again", 2 * PATIENCE)
    stage.release("end")
    await stage.succeeded(job_id)
    assert len(stage.began(job_id)) == 1
    await work_on(stage, 2)
    assert tree.status() is None


@flow
async def test_a_job_that_only_a_restored_store_says_is_running_runs_again(stage: Stage) -> None:
    tree = hire(stage, 2)
    job_id = await stage.enqueue_one(stay.call(stage.mark("end")))
    await stage.running(job_id)
    restore = await asyncio.to_thread(save, stage.ground)
    stage.release("end")
    await stage.succeeded(job_id)
    await asyncio.to_thread(restore)
    await stage.succeeded(job_id, within=2 * PATIENCE)
    assert len(stage.began(job_id)) == 2
    await work_on(stage, 2)
    assert tree.status() is None


@flow
async def test_an_outcome_that_a_restored_store_refuses_settles_the_new_lease(stage: Stage) -> None:
    tree = hire(stage, 1)
    await stage.succeeded(*await stage.enqueue(*calls(nap, 1)))
    job_id, restore = await save_waiting(stage, stay.call(stage.mark("end")))
    await asyncio.to_thread(restore)
    # The queue is held again: the outcome is refused before the job can be leased.
    stage.release("end")
    await stage.until(lambda: tree.said("late result refused"), "the outcome is refused")
    await let_run(stage, None)
    await stage.succeeded(job_id)
    assert tree.said("job leased again")
    assert len(stage.began(job_id)) == 1
    await work_on(stage, 1)


class Late(FaultyStore):
    """A store that makes a claim only when it is told, and that may lease nothing in the call that settles."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.is_asked, self.may_claim = asyncio.Event(), asyncio.Event()
        self.may_claim.set()
        self.settles_alone = False

    async def claim(self, claim: Claim) -> Claimed:
        self.is_asked.set()
        await self.may_claim.wait()
        is_split = self.settles_alone and claim.changes
        claimed = await super().claim(replace(claim, limit=0) if is_split else claim)
        return replace(claimed, next_at=claim.now) if is_split else claimed


class Once:
    """A job that waits in a worker of this process, and the file in which it was saved before it was leased."""

    def __init__(self, path: Path) -> None:
        self.app = Reprieve(f"sqlite:///{path}")
        self.store = Late(self.app.store)
        self.path, self.runs = str(path), 0
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.task = self.app.task(name="once", result_ttl="1h")(self.run)

    async def run(self) -> None:
        self.runs += 1
        self.has_begun.set()
        await self.may_end.wait()

    @asynccontextmanager
    async def leased(self) -> AsyncGenerator[tuple[Worker, JobHandle[None], Restore]]:
        """Let a worker run the job; it is saved first, with the worker's session."""
        async with asyncio.timeout(PATIENCE):
            with self.app.override(store=self.store):
                async with working(self.app, slots=2) as worker:
                    job = await self.task.using(delay=0.5).aenqueue()
                    restore = save_file(self.path)
                    await self.has_begun.wait()
                    yield worker, job, restore
        await self.app.aclose()


async def test_an_attempt_that_ends_while_a_claim_leases_its_job_again_is_not_repeated(tmp_path: Path) -> None:
    once = Once(tmp_path / "jobs.db")
    async with once.leased() as (worker, job, restore):
        once.store.may_claim.clear()
        once.store.is_asked.clear()
        await once.task.using(delay=60.0).aenqueue()
        await once.store.is_asked.wait()
        restore()
        once.may_end.set()
        while worker.parts.attempts.running:
            await once.store.behind.wait((), 0.01)
        once.store.may_claim.set()
        await job.aresult()
        assert once.runs == 1


async def test_an_outcome_that_was_refused_settles_a_lease_of_a_later_claim(tmp_path: Path) -> None:
    once = Once(tmp_path / "jobs.db")
    async with once.leased() as (_, job, restore):
        once.store.settles_alone = True
        restore()
        once.may_end.set()
        await job.aresult()
        assert once.runs == 1
