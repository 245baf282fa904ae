"""The times at which waiting jobs expire: rows of jobs, and what lanes know of the deadlines of their fresh jobs."""

from collections.abc import Sequence

import msgspec

from reprieve.stores.sql.expiring import LaneSpan
from reprieve.stores.sqlite.statements import Tx, run, statements


def add_expiring(tx: Tx, rows: Sequence[tuple[int, int]]) -> None:
    """Add the times at which jobs expire, each with the id of the job's row."""
    run(tx, statements("expire")["add"], rows)


def remove_expiring(tx: Tx, rows: Sequence[tuple[int, int]]) -> None:
    """Remove the times at which jobs expire, of jobs that wait no longer."""
    run(tx, statements("expire")["remove"], rows)


def add_deadlines(tx: Tx, fresh: dict[int, list[tuple[int, int, int]]]) -> list[tuple[int, int]]:
    """Add fresh jobs with deadlines to their lanes, before those count them; return the rows of the other jobs.

    A job is given as when it became ready, its deadline and the id of its row.
    """
    sql = statements("expire")
    rows: list[tuple[int, int]] = []
    changed = []
    for columns in tx.execute(sql["spans"], (msgspec.json.encode(list(fresh)).decode(),)).fetchall():
        before = LaneSpan(*columns)
        jobs = fresh[before.lane]
        after, others = before.with_jobs([(at, deadline_at) for at, deadline_at, _ in jobs])
        rows += [jobs[number][1:] for number in others]
        if after != before:
            changed.append((after.lane, after.span, after.swept_until, after.expires_at))
    run(tx, sql["set_spans"], changed)
    return rows
