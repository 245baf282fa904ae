"""Annotations: what stands beside the version of a job that runs, cancel requests and progress."""

from collections.abc import Sequence

import msgspec

from reprieve.core.job import CancelRequest
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Annotation

_encode_request = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(CancelRequest).decode


def cancels(tx: Tx) -> dict[str, CancelRequest]:
    """Return the cancel requests for jobs that run."""
    return {job: _decode_request(packed) for job, packed in tx.all(statements("annotations")["cancels"])}


def annotate(tx: Tx, places: Places, requests: Sequence[Annotation]) -> list[bool]:
    """Note cancel requests and progress beside jobs that run."""
    sql = statements("annotations")
    places.take_turn(tx)
    held = [
        tx.execute(
            sql["is_held_by" if request.session else "is_held"], {"id": request.job_id, "session": request.session}
        )
        for request in requests
    ]
    answers = []
    for request, holder in zip(requests, held, strict=True):
        (is_heard,) = holder.one() or (False,)
        if is_heard:
            cancel = None if request.cancel is None else _encode_request(request.cancel)
            tx.execute(sql["annotate"], {"id": request.job_id, "cancel": cancel, "progress": request.progress})
        answers.append(is_heard)
    return answers
