"""Series: what was counted is added to a row of its own, and to the lines of its names by the next prune."""

import sqlite3
from functools import partial
from typing import NamedTuple

from reprieve.core.series import ENQUEUED, SeriesDelta, unpack_deltas
from reprieve.stores.protocol import Retention
from reprieve.stores.sql import series
from reprieve.stores.sql.series import MAX_ROWS_PER_ROLL_UP
from reprieve.stores.sqlite.statements import run, statements
from reprieve.stores.sqlite.tx import SqliteTx

MAX_ROWS = 1_000
"""Lines of each step that one call deletes, and counts of enqueues that it adds."""

MAX_DELTAS = 1_000
"""Deltas that one call adds, and those of one row more: some ten milliseconds, in which no other process writes."""


class EnqueuedRow(NamedTuple):
    """How many jobs were enqueued on a lane in a minute."""

    minute: int
    lane: int
    jobs: int
    queue: str
    task: str
    dependency: str
    tenant: str


def roll_up(tx: sqlite3.Connection, retention: Retention) -> bool:
    """Add what was counted to its lines, or a part of it; return whether more is left."""
    sql = statements("series")
    deltas: list[SeriesDelta] = []
    rows = tx.execute(sql["deltas"], {"max_rows": MAX_ROWS_PER_ROLL_UP}).fetchall()
    last = 0
    for seq, packed in rows:
        if len(deltas) >= MAX_DELTAS:
            break
        deltas += unpack_deltas(packed)
        last = seq
    tx.execute(sql["delete_deltas"], {"seq": last})
    enqueued = [EnqueuedRow(*row) for row in tx.execute(sql["enqueued"], {"max_rows": MAX_ROWS}).fetchall()]
    deltas += (
        SeriesDelta(row.minute, row.queue, row.task, row.dependency, row.tenant, {ENQUEUED: row.jobs})
        for row in enqueued
    )
    if enqueued:
        tx.execute(sql["delete_enqueued"], {"minute": enqueued[-1].minute, "lane": enqueued[-1].lane})
    series.roll_up(SqliteTx(tx), sql, deltas, retention, partial(run, tx, sql["write_lines"]))
    return len(rows) == MAX_ROWS_PER_ROLL_UP or len(deltas) >= MAX_DELTAS or len(enqueued) == MAX_ROWS


def prune(tx: sqlite3.Connection, retention: Retention) -> int:
    """Delete lines that are kept no longer; return how many."""
    sql = statements("series")["prune"]
    return sum(tx.execute(sql, {**step, "max_rows": MAX_ROWS}).rowcount for step in series.expired(retention))
