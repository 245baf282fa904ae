"""Annotations of running jobs, cancel requests and progress; they do not change the version of a job."""

import sqlite3
from collections.abc import Sequence

from reprieve.core.job import CancelRequest
from reprieve.stores.protocol import Annotation, cancel_requested
from reprieve.stores.record import pack_cancel_request, unpack_cancel_request
from reprieve.stores.sql.audit import record_audit
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.leases import packed_row, unpack_lease
from reprieve.stores.sqlite.rows import row_id
from reprieve.stores.sqlite.statements import statements
from reprieve.stores.sqlite.tx import SqliteTx


def cancel_requests(tx: sqlite3.Connection) -> dict[int, CancelRequest]:
    """Return the cancel requests for running jobs, by the ids of their rows."""
    return {row: unpack_cancel_request(packed) for row, packed in tx.execute(statements("annotations")["cancels"])}


def annotate(tx: sqlite3.Connection, lanes: LaneCache, requests: Sequence[Annotation]) -> list[bool]:
    """Store cancel requests and progress of running jobs; return for each whether its job runs, in its session."""
    sql = statements("annotations")
    results = []
    for request in requests:
        row = row_id(request.job_id)
        leases = tx.execute(statements("find")["leases_of_job"], {"packed": packed_row(row)})
        held = [(name, jobs[row]) for name, _, packed in leases if row in (jobs := unpack_lease(packed))]
        is_running = bool(held) and request.session in ("", *(name for name, _ in held))
        if is_running:
            cancel = None
            if request.cancel is not None:
                cancel = pack_cancel_request(request.cancel)
                if tx.execute(sql["is_requested"], (row,)).fetchone() is None:
                    lane = lanes.get(tx, held[0][1].lane)
                    entry = cancel_requested(request, request.cancel, tenant=lane.tenant, queue=lane.queue)
                    record_audit(SqliteTx(tx), statements("audit"), (entry,))
            tx.execute(sql["annotate"], (row, cancel, request.progress))
        results.append(is_running)
    return results
