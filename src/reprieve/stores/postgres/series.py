"""Series: what was counted is added to a row of its own, and to the lines of its names by the next prune.

Claims and enqueues only insert rows. The lines are written by one transaction at a time, not under the claim lock.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from reprieve.core.series import ENQUEUED, SeriesDelta, unpack_deltas
from reprieve.stores.postgres.array_statements import run
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Retention
from reprieve.stores.sql import series
from reprieve.stores.sql.series import MAX_ROWS_PER_ROLL_UP, LineRow

MAX_ROWS = 2_000
"""Lines of each step that one call deletes."""


class EnqueuedRow(NamedTuple):
    """How many jobs a claim found to be enqueued in a minute, by their names."""

    minute: int
    queue: str
    task: str
    dependency: str
    tenant: str
    jobs: int


_decode_enqueued = msgspec.json.Decoder(list[EnqueuedRow]).decode


def roll_up(tx: Tx, retention: Retention) -> bool:
    """Add what was counted to its lines, or a part of it; return whether more is left for this process."""
    sql = statements("series")
    if tx.one(sql["lock"]) != (True,):
        return False
    rows = tx.all(sql["take_deltas"], {"max_rows": MAX_ROWS_PER_ROLL_UP})
    deltas = [delta for (packed,) in rows for delta in _unpack(packed)]
    series.roll_up(tx, sql, deltas, retention, partial(_write, tx))
    return len(rows) == MAX_ROWS_PER_ROLL_UP


def prune(tx: Tx, retention: Retention) -> int:
    """Delete lines that are kept no longer; return how many."""
    sql = statements("series")["prune"]
    results = [tx.execute(sql, {**step, "max_rows": MAX_ROWS}) for step in series.expired(retention)]
    return sum(int(count) for result in results for (count,) in result.all())


def _write(tx: Tx, rows: Sequence[LineRow]) -> None:
    run(tx, statements("series")["write_lines"], rows)


def _unpack(packed: bytes) -> list[SeriesDelta]:
    # No packed list of deltas begins as JSON does: in msgpack, the byte "[" is a number.
    if packed[:1] != b"[":
        return unpack_deltas(packed)
    return [
        SeriesDelta(row.minute, row.queue, row.task, row.dependency, row.tenant, {ENQUEUED: row.jobs})
        for row in _decode_enqueued(packed)
    ]
