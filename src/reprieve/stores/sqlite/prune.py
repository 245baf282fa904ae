"""Forgetting: what ended long enough ago goes; the dead go only when somebody has archived them.

A call forgets a bounded part, so that nobody has to wait for it for long.
"""

import contextlib
import sqlite3

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.stores.protocol import Pruned, Retention
from reprieve.stores.sqlite.finished import shorten
from reprieve.stores.sqlite.rows import row_id
from reprieve.stores.sqlite.statements import statements

MOST_ROWS = 2_000
"""Rows of each kind that one call deletes at the most."""

MOST_BATCHES = 200
"""Settlements whose succeeded jobs one call deletes at the most; each may hold a hundred jobs."""


def prune(tx: sqlite3.Connection, retention: Retention) -> Pruned:
    """Forget what may be forgotten."""
    sql = statements("prune")
    now = retention.now
    succeeded = sum(_prune_finished(tx, queue, retention) for (queue,) in tx.execute(sql["queues"]).fetchall())
    before = now - milliseconds(retention.cancelled_for)
    cancelled: list[int] = []
    for (queue,) in tx.execute(sql["all_queues"]).fetchall():
        gone = tx.execute(sql["cancelled"], {"queue": queue, "before": before, "most": MOST_ROWS}).fetchall()
        cancelled += (row for (row,) in gone)
    tx.execute(sql["forget"], (msgspec.json.encode(cancelled).decode(),))
    dead = sum(_forget_dead(tx, job) for job in retention.archived)
    return Pruned(
        succeeded=succeeded,
        cancelled=len(cancelled),
        dead=dead,
        events=tx.execute(
            sql["events"], {"before": now - milliseconds(retention.events_for), "most": MOST_ROWS}
        ).rowcount,
        keys=tx.execute(sql["keys"], {"now": now, "most": MOST_ROWS}).rowcount,
        results=tx.execute(sql["results"], {"now": now, "most": MOST_ROWS}).rowcount,
    )


def _prune_finished(tx: sqlite3.Connection, queue: int, retention: Retention) -> int:
    """Keep the newest succeeded jobs of a queue: whole rows go, and the one that crosses the limit is shortened."""
    sql = statements("prune")
    kept, oldest, crossing = 0, 0, None
    # The newest rows alone are looked at: whatever lies behind them may be long.
    with contextlib.closing(tx.execute(sql["too_many"], (queue,))) as newest:
        for seq, count in newest:
            if kept >= retention.succeeded:
                oldest = seq
                break
            if kept + count > retention.succeeded:
                crossing = (seq, retention.succeeded - kept)
            kept += count
    gone = shorten(tx, *crossing) if crossing else 0
    before = retention.now - milliseconds(retention.succeeded_for)
    old = {"queue": queue, "oldest": oldest, "before": before, "most": MOST_BATCHES}
    return gone + sum(int(count) for (count,) in tx.execute(sql["finished"], old).fetchall())


def _forget_dead(tx: sqlite3.Connection, job: Job) -> bool:
    sql = statements("prune")
    row = row_id(job.id)
    found = tx.execute(sql["dead"], (row, job.version)).fetchone()
    if found is None:
        return False
    lane, queue = found
    tx.execute(sql["unlist"], (queue, job.finished_at, row))
    tx.execute(sql["forget"], (msgspec.json.encode([row]).decode(),))
    tx.execute(sql["uncount"], (lane,))
    return True
