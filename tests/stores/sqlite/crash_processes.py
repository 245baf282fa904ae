"""The processes of a crash test: a producer and workers, each a process that writes down what it was told.

Run as `python -m tests.stores.sqlite.crash_processes role path log`. Before a settlement a worker writes what it
intends, so that a kill between a commit and its acknowledgement leaves no doubt.
"""

import asyncio
import os
import random
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from reprieve import clock
from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.job import Cause, Job
from reprieve.core.move import Cancel, Dead, Park, Retry, Return, Snooze, Succeed
from reprieve.errors import SessionDead
from reprieve.stores.protocol import Claim, Heartbeat, LimitUpdate, Retention
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import PROGRAM

CAUSE = Cause(reason="450 mailbox busy", code="450", kind="transient", fingerprint="busy")
LEASE = 2.0


class Log:
    """Lines that outlive their process: written to the file before the process goes on."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, lines: Iterable[str]) -> None:
        self._file.write("".join(f"{line}\n" for line in lines))
        self._file.flush()


def decide(job: Job, now: int, rng: random.Random) -> Change:
    """Let most attempts succeed, and the others end in every other way."""
    due_at = now + rng.randrange(100)
    match rng.randrange(20):
        case 0 | 1 | 2:
            move = change.settle(job, Retry(due_at=due_at, cause=CAUSE, delay=0.1, max_attempts=1_000), now)
        case 3:
            move = change.settle(job, Park(gate=job.dependency or "ses", due_at=due_at, cause=CAUSE), now)
        case 4:
            move = change.settle(job, Snooze(due_at=due_at), now)
        case 5:
            move = change.settle(job, Dead(death="permanent", cause=CAUSE, charged=True), now)
        case 6:
            move = change.settle(job, Cancel(reason="asked to stop"), now)
        case 7:
            move = change.settle(job, Return(), now)
        case _:
            move = change.settle(job, Succeed(), now)
    return move


def words(change: Change) -> str:
    return f"{change.job.id} {change.version} {type(change.event.move).__name__}"


async def work(store: SqliteStore, log: Log, rng: random.Random) -> None:
    """Claim and settle for ever, and take back what dead workers held."""
    log.write(["begun"])
    while True:
        try:
            await work_one_session(store, log, rng)
        except SessionDead:
            continue


async def work_one_session(store: SqliteStore, log: Log, rng: random.Random) -> None:
    session = f"worker-{os.getpid()}-{uuid4()}"
    await store.heartbeat(Heartbeat(session=session, now=clock.now(), lease=LEASE, slots=60, is_new=True))
    held: tuple[Job, ...] = ()
    number = 0
    while True:
        number += 1
        now = clock.now()
        changes = tuple(decide(job, now, rng) for job in held)
        log.write(f"intends {words(change)}" for change in changes)
        limit = rng.randrange(1, 40)
        claimed = await store.claim(
            Claim(session=session, number=number, now=now, queues=("default",), limit=limit, changes=changes)
        )
        told = zip(changes, claimed.results, strict=True)
        log.write(f"settled {words(change)}" for change, answer in told if answer == "applied")
        log.write(f"started {job.id} {job.version}" for job in claimed.jobs)
        held = claimed.jobs
        if number % 10 == 0:
            await keep_alive(store, session)
        if number % 50 == 0:
            await store.prune(Retention(now=clock.now(), succeeded=300))
        if not held:
            await store.wait(("default",), 0.02)


async def keep_alive(store: SqliteStore, session: str) -> None:
    if not await store.heartbeat(Heartbeat(session=session, now=clock.now(), lease=LEASE, slots=60)):
        raise SessionDead(session)
    lost = await store.recover(clock.now())
    await store.apply([change.settle(job, Return(crashed=True), clock.now()) for job in lost], clock.now())


async def produce(store: SqliteStore, path: Path, log: Log, rng: random.Random) -> None:
    """Enqueue for ever, alone and in transactions of our own, and turn at the limiters."""
    log.write(["begun"])
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as shop:
        shop.execute("create table if not exists shop_order (job text primary key)")
        while True:
            jobs = [new_job(store, rng) for _ in range(rng.randrange(1, 20))]
            log.write(f"enqueued {job_id}" for job_id in await store.enqueue(jobs, clock.now()))
            if rng.random() < 0.3:
                order(store, shop, log, rng)
            if rng.random() < 0.2:
                await store.update_limits([turn(rng)], clock.now(), PROGRAM)
            await store.wait((), 0.005)


def order(store: SqliteStore, shop: sqlite3.Connection, log: Log, rng: random.Random) -> None:
    shop.execute("begin immediate")
    job = new_job(store, rng, task="deliver", key="")
    shop.execute("insert into shop_order (job) values (?)", (job.id,))
    store.enqueue_in(shop, [job], clock.now())
    if rng.random() < 0.3:
        shop.execute("rollback")
    else:
        shop.execute("commit")
        log.write([f"enqueued {job.id}"])


def new_job(store: SqliteStore, rng: random.Random, task: str = "send", key: str | None = None) -> Job:
    now = clock.now()
    due_at = now + rng.choice((0, 0, 0, 50, 500))
    return Job(
        id=store.new_id(now, "default"),
        task=task,
        tenant=rng.choice("abcd"),
        dependency=rng.choice(("", "ses", "smtp")),
        group=rng.choice(("", "", "night")),
        priority=rng.choice((1, 5, 9)),
        key=rng.choice(("", "", f"k{rng.randrange(500)}")) if key is None else key,
        key_ttl=0.5,
        payload=rng.randbytes(rng.randrange(400)),
        created_at=now,
        due_at=due_at,
        waiting_for="schedule" if due_at > now else "turn",
        deadline_at=now + 300 if rng.random() < 0.03 else None,
        max_attempts=1_000,
    )


def turn(rng: random.Random) -> LimitUpdate:
    permits = rng.choice((None, None, 0, 2, 5))
    match rng.randrange(4):
        case 0:
            return LimitUpdate(subject="tenant", name=rng.choice("abcd"), queue="default", max_running=permits)
        case 1:
            return LimitUpdate(
                subject="tenant", name=rng.choice("abcd"), queue="default", weight=rng.choice((1.0, 3.0))
            )
        case 2:
            return LimitUpdate(subject="group", name="night", max_running=permits)
        case _:
            return LimitUpdate(subject="dependency", name=rng.choice(("ses", "smtp")), permits=permits)


async def main(role: str, path: Path, log: Log) -> None:
    rng = random.Random(os.getpid())
    store = SqliteStore(path)
    await (produce(store, path, log, rng) if role == "producer" else work(store, log, rng))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Log(Path(sys.argv[3]))))
