"""Pruning: what ended long enough ago is deleted; dead jobs only once they are archived.

A call deletes a bounded number of rows, so that no worker waits for long. Only jobs are deleted under the claim lock;
the rest has transactions of its own, so that workers never wait for a transaction that blocks it.
"""

from msgspec.structs import replace

from reprieve.core.duration import milliseconds
from reprieve.stores.postgres.causes import prune_causes, write_causes
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.postgres.finished import shorten
from reprieve.stores.postgres.pipeline import Result
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import IDLE_SECONDS, Pruned, Retention, names_interval
from reprieve.stores.sql import audit, entries
from reprieve.stores.sql.causes import CauseCounts
from reprieve.stores.sql.ended import IndexedFields
from reprieve.stores.sql.expired_keys import KeyPosition, KeySweep
from reprieve.stores.sql.failures import limits

MAX_ROWS = 2_000
"""Rows of each kind that one call deletes."""

MAX_EXPIRED_ENTRIES = 100
"""Entries that one call deletes; each is a change that readers are told of."""

MAX_SETTLEMENTS = 200
"""Settlements whose succeeded jobs one call deletes; each may hold a hundred jobs."""

MAX_NAMES = 500
"""Names of each kind that one call checks under the claim lock."""

REPEATABLE_MS = 600_000
"""Milliseconds for which an enqueue may be repeated: for so long the ids of succeeded jobs are kept."""


def prune_jobs(tx: Tx, lock: ClaimLock, retention: Retention) -> Pruned:
    """Delete jobs that need not be kept, under the claim lock."""
    sql = statements("prune")
    acquired = lock.acquire(tx)
    before = retention.now - milliseconds(retention.cancelled_for)
    cancelled = tx.execute(sql["cancelled"], {"before": before, "max_rows": MAX_ROWS})
    archived = {
        "ids": array_of(job.id for job in retention.archived),
        "versions": array_of(job.version for job in retention.archived),
        "ended_ats": array_of(job.finished_at for job in retention.archived),
    }
    pruned = Pruned(
        succeeded=_prune_finished(tx, retention),
        cancelled=_count(cancelled),
        dead=_count_dead(tx, tx.execute(sql["dead"], archived)),
        causes=prune_causes(tx, retention.now, MAX_ROWS),
    )
    if not acquired.is_all_counted:
        return replace(pruned, has_more=True)
    search = {
        "now": retention.now,
        "every": names_interval(pruned),
        "idle_since": retention.now - milliseconds(IDLE_SECONDS),
        "max_rows": MAX_NAMES,
    }
    names, has_more = tx.all(sql["names"], search)[0]
    return replace(pruned, names=names, has_more=has_more)


def prune_events(tx: Tx, retention: Retention) -> int:
    """Delete old events, and create the partitions of the next days; return how many events were deleted."""
    sql = statements("events")
    before = retention.now - milliseconds(retention.events_for)
    dropped = tx.execute(sql["drop_day"], {"before": before})
    tx.execute(sql["create_days"], {"now": retention.now})
    return _count(dropped) + _count(tx.execute(sql["prune"], {"before": before, "max_rows": MAX_ROWS}))


def prune_keys(tx: Tx, sweep: KeySweep, retention: Retention) -> int:
    """Delete expired keys whose jobs are gone, of the next ones in the sweep; return how many."""
    after = sweep.position(retention.now)
    wanted = {"after": after.expires_at, "after_key": after.key, "now": retention.now, "max_rows": MAX_ROWS}
    count, expires_at, key = tx.all(statements("prune")["keys"], wanted)[0]
    if expires_at is not None:
        sweep.advance(KeyPosition(expires_at, key))
    return int(count)


def prune_results(tx: Tx, retention: Retention) -> int:
    """Delete expired results; return how many."""
    return _count(tx.execute(statements("prune")["results"], {"now": retention.now, "max_rows": MAX_ROWS}))


def prune_failures(tx: Tx, retention: Retention) -> int:
    """Delete groups of failures that were not seen for long, or that are too many; return how many."""
    return _count(tx.execute(statements("failures")["prune"], limits(retention, MAX_ROWS)))


def prune_entries(tx: Tx, lock: ClaimLock, retention: Retention) -> int:
    """Delete entries that have expired, under the claim lock like every change of an entry; return how many."""
    sql = statements("entries")
    if not tx.all(sql["expired"], {"now": retention.now, "max_rows": 1}):
        return 0
    lock.acquire(tx)
    return entries.delete_expired(tx, sql, retention.now, MAX_EXPIRED_ENTRIES)


def prune_audit(tx: Tx, retention: Retention) -> int:
    """Delete old entries of the audit log; return how many."""
    return _count(tx.execute(statements("audit")["prune"], audit.limits(retention, MAX_ROWS)))


def _prune_finished(tx: Tx, retention: Retention) -> int:
    """Keep the newest succeeded jobs of each queue: older rows are emptied, and the row at the limit is shortened."""
    sql = statements("prune")
    max_kept = retention.succeeded
    shortened: dict[int, int] = {}
    oldest: dict[int, int] = {}
    for queue, seq, kept, total in tx.all(sql["too_many"], {"max_kept": max_kept + 1}):
        newer = total - kept
        if newer < max_kept:
            shortened[seq] = max_kept - newer
        else:
            oldest[queue] = max(seq, oldest.get(queue, seq))
    removed = shorten(tx, shortened)
    old = {
        "queues": array_of(oldest),
        "oldest": array_of(oldest.values()),
        "before": retention.now - milliseconds(retention.succeeded_for),
        "not_repeatable": retention.now - REPEATABLE_MS,
        "max_rows": MAX_SETTLEMENTS,
    }
    return removed + _count(tx.execute(sql["finished"], old))


def _count_dead(tx: Tx, result: Result) -> int:
    """Take deleted dead jobs from the counts of their causes; return how many they are."""
    gone = result.all()
    causes = CauseCounts()
    for tenant, *fields in gone:
        if tenant is not None:  # else the job was not in the list of ended jobs
            causes.remove_dead(IndexedFields(tenant, *fields).failure_names())
    write_causes(tx, causes)
    return len(gone)


def _count(result: Result) -> int:
    row = result.one()
    return int(row[0]) if row else 0
