"""Forgetting: what ended long enough ago goes; the dead go only when somebody has archived them.

A call forgets a bounded part, so that nobody has to wait for it for long.
"""

from typing import Any

import psycopg

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.finished import shorten
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Pruned, Retention

MOST_ROWS = 2_000
"""Rows of each kind that one call deletes at the most."""

MOST_BATCHES = 200
"""Settlements whose succeeded jobs one call deletes at the most; each may hold a hundred jobs."""


def prune(tx: Tx, places: Places, retention: Retention) -> Pruned:
    """Forget what may be forgotten."""
    sql = statements("prune")
    now = retention.now
    places.take_turn(tx)
    succeeded = sum(_prune_finished(tx, queue, retention) for (queue,) in tx.all(sql["queues"]))
    most = {"most": MOST_ROWS}
    cancelled = tx.execute(sql["cancelled"], {"before": now - milliseconds(retention.cancelled_for), **most})
    before = {"before": now - milliseconds(retention.events_for)}
    day = tx.execute(sql["day"], before)
    tx.execute(sql["days"], {"now": now})
    events = tx.execute(sql["events"], before | most)
    dead = sum(_forget_dead(tx, job) for job in retention.archived)
    keys = tx.execute(sql["keys"], {"now": now, **most})
    results = tx.execute(sql["results"], {"now": now, **most})
    return Pruned(
        succeeded=succeeded,
        cancelled=_count(cancelled),
        dead=dead,
        events=_count(day) + _count(events),
        keys=_count(keys),
        results=_count(results),
    )


def _prune_finished(tx: Tx, queue: int, retention: Retention) -> int:
    """Keep the newest succeeded jobs of a queue: whole rows go, and the one that crosses the limit is shortened."""
    sql = statements("prune")
    most = retention.succeeded
    gone, oldest = 0, 0
    for seq, count, kept in tx.all(sql["too_many"], {"queue": queue, "most": most + 1}):
        if kept - count < most:
            gone = shorten(tx, seq, most - (kept - count))
        else:
            oldest = max(oldest, seq)
    before = retention.now - milliseconds(retention.succeeded_for)
    old = {"queue": queue, "oldest": oldest, "before": before, "most": MOST_BATCHES}
    return gone + _count(tx.execute(sql["finished"], old))


def _forget_dead(tx: Tx, job: Job) -> bool:
    row = {"id": job.id, "version": job.version, "at": job.finished_at}
    return tx.one(statements("prune")["dead"], row) is not None


def _count(cursor: psycopg.Cursor[Any]) -> int:
    row = cursor.fetchone()
    return int(row[0]) if row else 0
