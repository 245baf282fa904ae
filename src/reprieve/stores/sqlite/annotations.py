"""Annotations of running jobs, cancel requests and progress; they do not change the version of a job."""

import sqlite3
from collections.abc import Sequence

from reprieve.core.job import CancelRequest
from reprieve.stores.protocol import Annotation
from reprieve.stores.record import pack_cancel_request, unpack_cancel_request
from reprieve.stores.sqlite.leases import packed_row, unpack_lease
from reprieve.stores.sqlite.rows import row_id
from reprieve.stores.sqlite.statements import statements


def cancel_requests(tx: sqlite3.Connection) -> dict[int, CancelRequest]:
    """Return the cancel requests for running jobs, by the ids of their rows."""
    return {row: unpack_cancel_request(packed) for row, packed in tx.execute(statements("annotations")["cancels"])}


def annotate(tx: sqlite3.Connection, requests: Sequence[Annotation]) -> list[bool]:
    """Store cancel requests and progress of running jobs; return for each whether its job runs, in its session."""
    sql = statements("annotations")
    results = []
    for request in requests:
        row = row_id(request.job_id)
        leases = tx.execute(statements("find")["leases_of_job"], {"packed": packed_row(row)})
        holders = [name for name, _, packed in leases if row in unpack_lease(packed)]
        is_running = bool(holders) and request.session in ("", *holders)
        if is_running:
            cancel = None if request.cancel is None else pack_cancel_request(request.cancel)
            tx.execute(sql["annotate"], (row, cancel, request.progress))
        results.append(is_running)
    return results
