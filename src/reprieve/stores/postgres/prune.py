"""Forgetting: what ended long enough ago goes; the dead go only when somebody has archived them.

A call forgets a bounded part, so that nobody has to wait for it for long. Only jobs are forgotten in a turn; whatever
else goes has transactions of its own, so that workers never wait for somebody who is in its way.
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


def prune_jobs(tx: Tx, places: Places, retention: Retention) -> Pruned:
    """Forget jobs that may be forgotten, in a turn of ours."""
    sql = statements("prune")
    places.take_turn(tx)
    succeeded = sum(_prune_finished(tx, queue, retention) for (queue,) in tx.all(sql["queues"]))
    before = retention.now - milliseconds(retention.cancelled_for)
    cancelled = tx.execute(sql["cancelled"], {"before": before, "most": MOST_ROWS})
    dead = sum(_forget_dead(tx, job) for job in retention.archived)
    return Pruned(succeeded=succeeded, cancelled=_count(cancelled), dead=dead)


def prune_events(tx: Tx, retention: Retention) -> int:
    """Forget events, and prepare the days that come; answer how many went."""
    sql = statements("prune")
    before = retention.now - milliseconds(retention.events_for)
    day = tx.execute(sql["day"], {"before": before})
    tx.execute(sql["days"], {"now": retention.now})
    return _count(day) + _count(tx.execute(sql["events"], {"before": before, "most": MOST_ROWS}))


def prune_keys(tx: Tx, retention: Retention) -> int:
    """Forget keys whose time is up; answer how many went."""
    return _count(tx.execute(statements("prune")["keys"], {"now": retention.now, "most": MOST_ROWS}))


def prune_results(tx: Tx, retention: Retention) -> int:
    """Forget results whose time is up; answer how many went."""
    return _count(tx.execute(statements("prune")["results"], {"now": retention.now, "most": MOST_ROWS}))


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
