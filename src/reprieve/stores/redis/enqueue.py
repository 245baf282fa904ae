"""New jobs as enqueue.lua reads them."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.core.ids import id_to_bytes
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.stores.event_record import pack_enqueued
from reprieve.stores.protocol import KEY_RETENTION_SECONDS
from reprieve.stores.record import WAIT_NUMBERS, key_of
from reprieve.stores.redis.records import lane_of, pack

MAX_JOBS_PER_CALL = 250
"""More in one script would block the server for too long."""

_HEAD: Final = Struct(">16sHBdH")
_KEY: Final = Struct(">H16sd")
_EVENT: Final = Struct(">HI")
_encode = msgspec.msgpack.Encoder().encode


def kept_until(job: Job, now: int) -> int:
    """Return until when a job's unique key is kept at least."""
    return now + milliseconds(KEY_RETENTION_SECONDS if job.key_ttl is None else job.key_ttl)


class RelayReceipt(Record):
    """What a call says of jobs that come out of an outbox."""

    taken_at: int
    """The server's time before the jobs were taken out of the outbox."""
    removed: bytes = b""
    """Ids of jobs whose rows are deleted from the outbox."""


def encode(jobs: Sequence[Job], now: int, *, has_keys: bool = True, receipt: RelayReceipt | None = None) -> list[bytes]:
    """Return the arguments of a call; with several partitions unique keys are kept elsewhere."""
    lanes: dict[str, int] = {}
    heads: list[bytes] = []
    keys: list[bytes] = []
    events: list[bytes] = []
    records: list[bytes] = []
    for number, job in enumerate(jobs, start=1):
        raw = id_to_bytes(job.id)
        lane = lanes.setdefault(lane_of(job), len(lanes) + 1)
        heads.append(_HEAD.pack(raw, lane, WAIT_NUMBERS[job.waiting_for], job.due_at, job.version & 0xFFFF))
        records.append(pack(job, raw))
        if job.key and has_keys:
            keys.append(_KEY.pack(number, key_of(job), kept_until(job, now)))
        if job.tells_all:
            event = pack_enqueued(job)
            events += _EVENT.pack(number, len(event)), event
    parts = [b"".join(heads), b"".join(keys), b"".join(events), *records]
    if receipt is None:
        return [_encode((now, tuple(lanes))), *parts]
    return [_encode((now, tuple(lanes), receipt.taken_at)), *parts, receipt.removed]
