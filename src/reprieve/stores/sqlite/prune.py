"""Pruning: deletes what ended long enough ago; dead jobs are deleted only after they were archived.

A call deletes a limited number of rows, so that it does not block the writer for long.
"""

import contextlib
import sqlite3
from collections import Counter

import msgspec
from msgspec.structs import replace

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.stores.protocol import Pruned, Retention, names_interval
from reprieve.stores.sql import audit, entries
from reprieve.stores.sql.causes import CauseCounts
from reprieve.stores.sql.ended import IndexedFields
from reprieve.stores.sql.expired_keys import KeyPosition, KeySweep
from reprieve.stores.sql.failures import limits
from reprieve.stores.sqlite import series
from reprieve.stores.sqlite.causes import prune_causes, write_causes
from reprieve.stores.sqlite.finished import shorten
from reprieve.stores.sqlite.forget_names import forget_names
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.name_counts import count_names
from reprieve.stores.sqlite.rows import row_id
from reprieve.stores.sqlite.statements import run, statements
from reprieve.stores.sqlite.tx import SqliteTx

MAX_ROWS = 2_000
"""Rows of each kind that one call deletes."""

MAX_EXPIRED_ENTRIES = 100
"""Entries that one call deletes; each is a change that readers are told of."""

MAX_SETTLEMENTS = 200
"""Settlements whose succeeded jobs one call deletes; each may hold a hundred jobs."""


def prune(tx: sqlite3.Connection, lanes: LaneCache, sweep: KeySweep, retention: Retention) -> Pruned:
    """Delete what is older than its retention; return how much."""
    sql = statements("prune")
    now = retention.now
    # Before lanes are deleted, whose names it needs.
    has_more_series = series.roll_up(tx, retention)
    succeeded = sum(
        _prune_finished(tx, queue, retention) for (queue,) in tx.execute(sql["queues_with_finished"]).fetchall()
    )
    before = now - milliseconds(retention.cancelled_for)
    cancelled: list[int] = []
    for (queue,) in tx.execute(sql["all_queues"]).fetchall():
        gone = tx.execute(sql["cancelled"], {"queue": queue, "before": before, "max_rows": MAX_ROWS}).fetchall()
        cancelled += (row for row, _ in gone)
        counts = Counter(lane for _, lane in gone)
        run(tx, sql["uncount_cancelled"], list(counts.items()))
        count_names(tx, lanes, {lane: {"cancelled": -number} for lane, number in counts.items()})
    tx.execute(sql["delete_jobs"], (msgspec.json.encode(cancelled).decode(),))
    causes = CauseCounts()
    dead = sum(_delete_dead(tx, lanes, job, causes) for job in retention.archived)
    write_causes(tx, causes)
    pruned = Pruned(
        succeeded=succeeded,
        cancelled=len(cancelled),
        dead=dead,
        events=_prune_events(tx, now - milliseconds(retention.events_for)),
        keys=_prune_keys(tx, sweep, now),
        results=tx.execute(sql["results"], {"now": now, "max_rows": MAX_ROWS}).rowcount,
        failures=tx.execute(statements("failures")["prune"], limits(retention, MAX_ROWS)).rowcount,
        entries=entries.delete_expired(SqliteTx(tx), statements("entries"), now, MAX_EXPIRED_ENTRIES),
        audit=tx.execute(statements("audit")["prune"], audit.limits(retention, MAX_ROWS)).rowcount,
        series=series.prune(tx, retention),
        causes=prune_causes(tx, now, MAX_ROWS),
    )
    if has_more_series:
        return replace(pruned, has_more=True)
    names, has_more = forget_names(tx, now, names_interval(pruned))
    return replace(pruned, names=names, has_more=has_more)


def _prune_finished(tx: sqlite3.Connection, queue: int, retention: Retention) -> int:
    """Keep the newest succeeded jobs of a queue: delete older rows, and shorten the row that crosses the limit."""
    sql = statements("prune")
    kept, oldest, crossing = 0, 0, None
    # Read the newest rows only: there may be very many older ones.
    with contextlib.closing(tx.execute(sql["newest_finished"], (queue,))) as newest:
        for seq, count in newest:
            if kept >= retention.succeeded:
                oldest = seq
                break
            if kept + count > retention.succeeded:
                crossing = (seq, retention.succeeded - kept)
            kept += count
    gone = shorten(tx, *crossing) if crossing else 0
    before = retention.now - milliseconds(retention.succeeded_for)
    old = {"queue": queue, "oldest": oldest, "before": before, "max_rows": MAX_SETTLEMENTS}
    return gone + sum(int(count) for (count,) in tx.execute(sql["finished"], old).fetchall())


def _prune_events(tx: sqlite3.Connection, before: int) -> int:
    """Delete events from before a time, and note up to which position, for readers that have fallen behind."""
    sql = statements("events")
    gone = tx.execute(sql["prune"], {"before": before, "max_rows": MAX_ROWS}).fetchall()
    if gone:
        tx.execute(sql["pruned_to"], max(gone))
    return len(gone)


def _prune_keys(tx: sqlite3.Connection, sweep: KeySweep, now: int) -> int:
    """Delete expired keys whose jobs are gone, of the next ones in the sweep."""
    sql, after = statements("prune"), sweep.position(now)
    wanted = {"after": after.expires_at, "after_key": after.key, "now": now, "max_rows": MAX_ROWS}
    expired = tx.execute(sql["expired_keys"], wanted).fetchall()
    free = [(key,) for _, key, is_held in expired if not is_held]
    tx.executemany(sql["delete_key"], free)
    if expired:
        expires_at, key, _ = expired[-1]
        sweep.advance(KeyPosition(expires_at, key))
    return len(free)


def _delete_dead(tx: sqlite3.Connection, lanes: LaneCache, job: Job, causes: CauseCounts) -> bool:
    sql = statements("prune")
    row = row_id(job.id)
    found = tx.execute(sql["dead"], (row, job.version)).fetchone()
    if found is None:
        return False
    lane, queue = found
    for fields in tx.execute(sql["delete_ended"], (queue, job.finished_at, row)).fetchall():
        causes.remove_dead(IndexedFields(*fields).failure_names())
    tx.execute(sql["delete_jobs"], (msgspec.json.encode([row]).decode(),))
    tx.execute(sql["uncount"], (lane,))
    count_names(tx, lanes, {lane: {"dead": -1}})
    return True
