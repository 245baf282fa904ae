"""Changes as settle.lua reads them."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

import msgspec

from reprieve.core.change import Change
from reprieve.core.duration import milliseconds
from reprieve.core.ids import id_to_bytes
from reprieve.core.job import Job
from reprieve.core.move import ManualRetry, Park, Retry, Start, Succeed
from reprieve.core.series import delta_of, pack_deltas
from reprieve.stores.audit_pages import pack_entry
from reprieve.stores.event_record import pack_event, pack_started
from reprieve.stores.protocol import ChangeResult
from reprieve.stores.record import CANCELLED, DEAD, WAIT_NUMBERS, WAITING
from reprieve.stores.redis.records import lane_of, pack

_HEAD: Final = Struct(">B16sIdB")
_STATES: Final = {"waiting": WAITING, "dead": DEAD, "cancelled": CANCELLED, "succeeded": -1}
_RESULTS: Final[dict[bytes, ChangeResult]] = {
    b"applied": "applied",
    b"already": "already",
    b"refused": "refused",
    b"missing": "missing",
}
_encode = msgspec.msgpack.Encoder().encode


def encode(changes: Sequence[Change], session: str, now: int) -> list[bytes]:
    """Return the arguments of a call: a head for each change, and details of all but plain successes."""
    heads: list[bytes] = []
    rest: list[bytes] = []
    for change in changes:
        job, event = change.job, change.event
        raw = id_to_bytes(job.id)
        is_success = isinstance(event.move, Succeed)
        is_plain = is_success and change.result is None and change.session == session and not job.tells_all
        heads.append(_HEAD.pack(not is_plain, raw, change.version, event.at, is_success))
        if not is_plain:
            rest += _details(change, raw, now)
    return [b"".join(heads), *rest]


def _details(change: Change, raw: bytes, now: int) -> tuple[bytes, ...]:
    job, event = change.job, change.event
    is_success = job.state == "succeeded"
    ended_at = job.finished_at or now
    info = (
        change.session,
        _STATES[job.state],
        WAIT_NUMBERS[job.waiting_for],
        job.due_at if job.state == "waiting" else ended_at,
        job.version,
        False if change.result is None else now + milliseconds(change.result_ttl),
        lane_of(job),
        # Whether a cancel request ends the job instead: see `change.give_up`.
        job.state == "waiting" and not isinstance(event.move, ManualRetry),
        (job.state == "waiting" and job.expires_at) or False,
        isinstance(event.move, Retry | Park),
    )
    is_silent = isinstance(event.move, Start | Succeed) and not job.tells_all
    delta = delta_of(change)
    return (
        _encode(info),
        b"" if is_success else pack(job, raw),
        b"" if is_silent else pack_event(event),
        change.result or b"",
        b"" if change.audit is None else pack_entry(change.audit),
        b"" if delta is None else pack_deltas([delta]),
    )


def encode_starts(jobs: Sequence[Job]) -> bytes:
    """Return the starts of leased jobs as settle_and_claim.lua reads them: id, length and event of each."""
    parts: list[bytes] = []
    for job in jobs:
        event = pack_started(job)
        parts += id_to_bytes(job.id), len(event).to_bytes(4, "big"), event
    return b"".join(parts)


def decode(results: bytes, count: int) -> list[ChangeResult]:
    """Return the results of so many changes: words separated by spaces, or one word for all of them."""
    if results == b"applied":
        return ["applied"] * count
    return [_RESULTS[word] for word in results.split()]
