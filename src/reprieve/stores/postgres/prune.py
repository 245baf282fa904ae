"""Forgetting: what ended long enough ago goes; the dead go only when somebody has archived them."""

from typing import Any

import psycopg

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.finished import shorten
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Pruned, Retention


def prune(tx: Tx, places: Places, retention: Retention) -> Pruned:
    """Forget what may be forgotten."""
    sql = statements("prune")
    now = retention.now
    places.take_turn(tx)
    succeeded = sum(_prune_finished(tx, queue, retention) for (queue,) in tx.all(sql["queues"]))
    cancelled = tx.execute(sql["cancelled"], {"before": now - milliseconds(retention.cancelled_for)})
    events = tx.execute(sql["events"], {"before": now - milliseconds(retention.events_for)})
    dead = sum(_forget_dead(tx, job) for job in retention.archived)
    keys = tx.execute(sql["keys"], {"now": now})
    results = tx.execute(sql["results"], {"now": now})
    return Pruned(
        succeeded=succeeded,
        cancelled=_count(cancelled),
        dead=dead,
        events=_count(events),
        keys=_count(keys),
        results=_count(results),
    )


def _prune_finished(tx: Tx, queue: int, retention: Retention) -> int:
    """Keep the newest succeeded jobs of a queue: whole rows go, and the one that crosses the limit is shortened."""
    sql = statements("prune")
    kept, oldest, gone = 0, 0, 0
    for seq, count in tx.all(sql["too_many"], {"queue": queue}):
        if kept >= retention.succeeded:
            oldest = seq
            break
        if kept + count > retention.succeeded:
            gone += shorten(tx, seq, retention.succeeded - kept)
        kept += count
    since = retention.now - milliseconds(retention.succeeded_for)
    rows = tx.all(sql["finished"], {"queue": queue, "oldest": oldest, "since": since})
    return gone + sum(int(count) for (count,) in rows)


def _forget_dead(tx: Tx, job: Job) -> bool:
    row = {"id": job.id, "version": job.version, "at": job.finished_at}
    return tx.one(statements("prune")["dead"], row) is not None


def _count(cursor: psycopg.Cursor[Any]) -> int:
    row = cursor.fetchone()
    return int(row[0]) if row else 0
