"""Forgetting names without jobs: lanes, then the tenants, limiters and queues that no lane names any more.

Every ten minutes all lanes are read once, some with each prune. Tenants and limiters count the lanes that name them,
and queues their tenants, so those that are unused are in an index. docs/decisions/0031-forgetting-names.md has the
rules.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.stores.protocol import IDLE_SECONDS
from reprieve.stores.sqlite.leases import unpack_lease
from reprieve.stores.sqlite.statements import run, statements

MAX_NAMES = 2_000
"""Rows of each kind that one call reads."""

ALL_READ = -1
"""What `names_reached` is between two searches."""


class LaneRow(NamedTuple):
    """A lane, and what its counters say of its jobs."""

    id: int
    tenant: int
    task_limiter: int
    dependency_limiter: int
    group_limiter: int
    pair_limiter: int
    is_empty: bool
    may_run: bool


def forget_names(tx: sqlite3.Connection, now: int, interval: int) -> tuple[int, bool]:
    """Delete some of the names without jobs; return how many, and whether more are left to check.

    A search for lanes begins so many milliseconds after the last one began.
    """
    sql = statements("forget_names")
    lanes, is_over = _forget_lanes(tx, now, interval)
    limits = {"now": now, "idle_since": now - milliseconds(IDLE_SECONDS), "max_rows": MAX_NAMES}
    tenants = [queue for (queue,) in tx.execute(sql["delete_tenants"], limits).fetchall()]
    _uncount(tx, "uncount_tenants", tenants)
    limiters = tx.execute(sql["delete_limiters"], limits).rowcount
    queues = [limiter for (limiter,) in tx.execute(sql["delete_queues"], limits).fetchall()]
    if queues:
        tx.execute(sql["delete_queue_limiters"], (msgspec.json.encode(queues).decode(),))
    has_more = not is_over or max(len(tenants), limiters, len(queues)) >= MAX_NAMES
    return lanes + len(tenants) + limiters + len(queues), has_more


def _forget_lanes(tx: sqlite3.Connection, now: int, interval: int) -> tuple[int, bool]:
    """Delete those of the next lanes that have no jobs; return how many, and whether all lanes were read."""
    sql = statements("forget_names")
    checked_at, reached = tx.execute(sql["progress"]).fetchone()
    if reached == ALL_READ:
        if abs(now - checked_at) < interval:
            return 0, True
        checked_at, reached = now, 0
    rows = tx.execute(sql["next_lanes"], {"reached": reached, "max_rows": MAX_NAMES}).fetchall()
    lanes = [LaneRow(*row) for row in rows]
    reached = lanes[-1].id if len(lanes) == MAX_NAMES else ALL_READ
    tx.execute(sql["note_progress"], {"checked_at": checked_at, "reached": reached})
    unused = [lane for lane in lanes if lane.is_empty and not lane.may_run]
    unclear = [lane for lane in lanes if lane.is_empty and lane.may_run]
    if unclear:
        leased = {job.lane for (jobs,) in tx.execute(sql["leases"]) for job in unpack_lease(jobs).values()}
        unused += [lane for lane in unclear if lane.id not in leased]
    if unused:
        _delete(tx, unused, now)
    return len(unused), reached == ALL_READ


def _delete(tx: sqlite3.Connection, lanes: Sequence[LaneRow], now: int) -> None:
    """Delete lanes. Another process learns of it with the next transaction in which it looks up names."""
    sql = statements("forget_names")
    tx.execute(sql["delete_lanes"], (msgspec.json.encode([lane.id for lane in lanes]).decode(),))
    tx.execute(sql["note_deleted"])
    _uncount(tx, "uncount_of_tenants", (lane.tenant for lane in lanes), now)
    limiters = (
        id_
        for lane in lanes
        for id_ in (lane.task_limiter, lane.dependency_limiter, lane.group_limiter, lane.pair_limiter)
    )
    _uncount(tx, "uncount_of_limiters", limiters, now)
    tx.execute(statements("name_counts")["forget"])


def _uncount(tx: sqlite3.Connection, statement: str, rows: Iterable[int], *facts: int) -> None:
    """Lower the counts of rows, by as much as each is named; the statement gets these facts with each row."""
    run(tx, statements("forget_names")[statement], [(*item, *facts) for item in Counter(rows).items()])
