"""Annotations: what stands beside the version of a job that runs, cancel requests and progress."""

import sqlite3
from collections.abc import Sequence

import msgspec

from reprieve.core.job import CancelRequest
from reprieve.stores.protocol import Annotation
from reprieve.stores.sqlite.rows import row_id
from reprieve.stores.sqlite.statements import statements

_decode_lease = msgspec.msgpack.Decoder(dict[int, tuple[int, int]]).decode
_encode_request = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(CancelRequest).decode


def cancels(tx: sqlite3.Connection) -> dict[int, CancelRequest]:
    """Return the cancel requests for jobs that run."""
    return {row: _decode_request(packed) for row, packed in tx.execute(statements("annotations")["cancels"])}


def annotate(tx: sqlite3.Connection, requests: Sequence[Annotation]) -> list[bool]:
    """Note cancel requests and progress beside jobs that run."""
    sql = statements("annotations")
    holders: dict[int, str] = {}
    for name, packed in tx.execute(sql["leases"]):
        holders |= dict.fromkeys(_decode_lease(packed), name)
    answers = []
    for request in requests:
        row = row_id(request.job_id)
        is_heard = row in holders and request.session in ("", holders[row])
        if is_heard:
            cancel = None if request.cancel is None else _encode_request(request.cancel)
            tx.execute(sql["annotate"], (row, cancel, request.progress))
        answers.append(is_heard)
    return answers
