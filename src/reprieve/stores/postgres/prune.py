"""Forgetting: what ended long enough ago goes; the dead go only when somebody has archived them.

A call forgets a bounded part, so that nobody has to wait for it for long. Only jobs are forgotten in a turn; whatever
else goes has transactions of its own, so that workers never wait for somebody who is in its way.
"""

from reprieve.core.duration import milliseconds
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.finished import shorten
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.postgres.wire import Reply
from reprieve.stores.protocol import Pruned, Retention

MOST_ROWS = 2_000
"""Rows of each kind that one call deletes at the most."""

MOST_BATCHES = 200
"""Settlements whose succeeded jobs one call deletes at the most; each may hold a hundred jobs."""

REPEATED = 600_000
"""Milliseconds for which an enqueue may be repeated: the ids of jobs that succeeded are known for longer."""


def prune_jobs(tx: Tx, places: Places, retention: Retention) -> Pruned:
    """Forget jobs that may be forgotten, in a turn of ours."""
    sql = statements("prune")
    places.take_turn(tx)
    before = retention.now - milliseconds(retention.cancelled_for)
    cancelled = tx.execute(sql["cancelled"], {"before": before, "most": MOST_ROWS})
    archived = {
        "ids": array_of(job.id for job in retention.archived),
        "versions": array_of(job.version for job in retention.archived),
        "ats": array_of(job.finished_at for job in retention.archived),
    }
    dead = tx.execute(sql["dead"], archived)
    return Pruned(succeeded=_prune_finished(tx, retention), cancelled=_count(cancelled), dead=_count(dead))


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


def _prune_finished(tx: Tx, retention: Retention) -> int:
    """Keep the newest succeeded jobs of each queue: whole rows are emptied, and the one at the limit is shortened."""
    sql = statements("prune")
    most = retention.succeeded
    crossing: dict[int, int] = {}
    oldest: dict[int, int] = {}
    for queue, seq, count, kept in tx.all(sql["too_many"], {"most": most + 1}):
        if kept - count < most:
            crossing[seq] = most - (kept - count)
        else:
            oldest[queue] = max(seq, oldest.get(queue, seq))
    gone = shorten(tx, crossing)
    old = {
        "queues": array_of(oldest),
        "oldest": array_of(oldest.values()),
        "before": retention.now - milliseconds(retention.succeeded_for),
        "repeated": retention.now - REPEATED,
        "most": MOST_BATCHES,
    }
    return gone + _count(tx.execute(sql["finished"], old))


def _count(reply: Reply) -> int:
    row = reply.one()
    return int(row[0]) if row else 0
