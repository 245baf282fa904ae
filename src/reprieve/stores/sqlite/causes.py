"""Causes in a file: the counts that a batch of changes writes, and those that are pruned."""

import sqlite3

from reprieve.stores.sql.causes import CauseCounts, PrunedHour, prune_limits, pruned_living
from reprieve.stores.sqlite.statements import run, statements


def write_causes(tx: sqlite3.Connection, counts: CauseCounts) -> None:
    """Write what a batch counts, after it has changed the index of ended jobs."""
    sql = statements("causes")
    run(tx, sql["add"], counts.seen_rows())
    run(tx, sql["add_hours"], counts.hour_rows())
    if removed := counts.removed_rows():
        run(tx, sql["remove"], removed)
        tx.execute(sql["remove_empty"])


def prune_causes(tx: sqlite3.Connection, now: int, max_rows: int) -> int:
    """Delete the counts of hours that are kept no longer; return how many."""
    sql = statements("causes")
    gone = [PrunedHour(*row) for row in tx.execute(sql["prune_hours"], prune_limits(now, max_rows)).fetchall()]
    if living := pruned_living(gone):
        run(tx, sql["remove_living"], living)
        tx.execute(sql["remove_empty"])
    return len(gone)
