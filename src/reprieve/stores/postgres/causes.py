"""Causes in a schema: the counts that a batch of changes writes, and that are pruned, both under the claim lock."""

from reprieve.stores.postgres.array_statements import run
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.statements import statements
from reprieve.stores.sql.causes import CauseCounts, PrunedHour, prune_limits, pruned_living


def write_causes(tx: Tx, counts: CauseCounts) -> None:
    """Write what a batch counts, after it has changed the index of ended jobs."""
    sql = statements("causes")
    for name, rows in (("add", counts.seen_rows()), ("add_hours", counts.hour_rows())):
        if rows:
            run(tx, sql[name], rows)
    if removed := counts.removed_rows():
        run(tx, sql["remove"], removed)
        tx.execute(sql["remove_empty"])


def prune_causes(tx: Tx, now: int, max_rows: int) -> int:
    """Delete the counts of hours that are kept no longer; return how many."""
    sql = statements("causes")
    gone = [PrunedHour(*row) for row in tx.all(sql["prune_hours"], prune_limits(now, max_rows))]
    if living := pruned_living(gone):
        run(tx, sql["remove_living"], living)
        tx.execute(sql["remove_empty"])
    return len(gone)
