"""Forgetting: what ended long enough ago goes; the dead go only when somebody has archived them."""

import sqlite3

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.stores.protocol import Pruned, Retention
from reprieve.stores.sqlite.finished import shorten
from reprieve.stores.sqlite.rows import row_id
from reprieve.stores.sqlite.statements import statements


def prune(tx: sqlite3.Connection, retention: Retention) -> Pruned:
    """Forget what may be forgotten."""
    sql = statements("prune")
    now = retention.now
    succeeded = sum(_prune_finished(tx, queue, retention) for (queue,) in tx.execute(sql["queues"]).fetchall())
    before = now - milliseconds(retention.cancelled_for)
    queues = [queue for (queue,) in tx.execute(sql["all_queues"]).fetchall()]
    cancelled = [row for queue in queues for (row,) in tx.execute(sql["cancelled"], (queue, before)).fetchall()]
    tx.execute(sql["forget"], (msgspec.json.encode(cancelled).decode(),))
    dead = sum(_forget_dead(tx, job) for job in retention.archived)
    return Pruned(
        succeeded=succeeded,
        cancelled=len(cancelled),
        dead=dead,
        events=tx.execute(sql["events"], (now - milliseconds(retention.events_for),)).rowcount,
        keys=tx.execute(sql["keys"], (now,)).rowcount,
        results=tx.execute(sql["results"], (now,)).rowcount,
    )


def _prune_finished(tx: sqlite3.Connection, queue: int, retention: Retention) -> int:
    """Keep the newest succeeded jobs of a queue: whole rows go, and the one that crosses the limit is shortened."""
    sql = statements("prune")
    kept, oldest, gone = 0, 0, 0
    for seq, count in tx.execute(sql["too_many"], (queue,)).fetchall():
        if kept >= retention.succeeded:
            oldest = seq
            break
        if kept + count > retention.succeeded:
            gone += shorten(tx, seq, retention.succeeded - kept)
        kept += count
    since = retention.now - milliseconds(retention.succeeded_for)
    rows = tx.execute(sql["finished"], (queue, oldest, since)).fetchall()
    return gone + sum(int(count) for (count,) in rows)


def _forget_dead(tx: sqlite3.Connection, job: Job) -> bool:
    sql = statements("prune")
    row = row_id(job.id)
    found = tx.execute(sql["dead"], (row, job.version)).fetchone()
    if found is None:
        return False
    shelf, queue = found
    tx.execute(sql["unlist"], (queue, job.finished_at, row))
    tx.execute(sql["forget"], (msgspec.json.encode([row]).decode(),))
    tx.execute(sql["uncount"], (shelf,))
    return True
