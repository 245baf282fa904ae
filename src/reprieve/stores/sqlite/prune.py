"""Forgetting: what ended long enough ago goes; the dead go only when somebody has archived them."""

import sqlite3

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.stores.protocol import Pruned, Retention
from reprieve.stores.sqlite.finished import shorten
from reprieve.stores.sqlite.rows import DEAD, row_id
from reprieve.stores.sqlite.statements import statements


def prune(tx: sqlite3.Connection, retention: Retention) -> Pruned:
    """Forget what may be forgotten."""
    sql = statements("prune")
    now = retention.now
    succeeded = sum(_prune_finished(tx, queue, retention) for (queue,) in tx.execute(sql["queues"]).fetchall())
    cancelled = [row for (row,) in tx.execute(sql["cancelled"], (now - milliseconds(retention.cancelled_for),))]
    tx.execute(sql["forget"], (msgspec.json.encode(cancelled).decode(),))
    dead = sum(_forget_dead(tx, job.id, job.version) for job in retention.archived)
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


def _forget_dead(tx: sqlite3.Connection, job_id: str, version: int) -> bool:
    row = row_id(job_id)
    found = tx.execute("select shelf, state, version from job where id = ?", (row,)).fetchone()
    if found is None or found[1] != DEAD or found[2] != version:
        return False
    shelf = found[0]
    queue = tx.execute("select queue from shelf where id = ?", (shelf,)).fetchone()[0]
    tx.execute("delete from ended where queue = ? and state = ? and id = ?", (queue, DEAD, row))
    tx.execute("delete from job where id = ?", (row,))
    tx.execute("update shelf set dead = dead - 1 where id = ?", (shelf,))
    return True
