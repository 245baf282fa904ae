"""New jobs as the script reads them."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.core.ids import id_to_bytes
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.stores.protocol import KEY_RETENTION_SECONDS
from reprieve.stores.record import NUMBERS, key_of
from reprieve.stores.redis.records import lane_of, pack

MOST = 250
"""Jobs of one call of the script: more would keep everybody else waiting for too long."""

_HEAD: Final = Struct(">16sHBdH")
_KEY: Final = Struct(">H16sd")
_encode = msgspec.msgpack.Encoder().encode


def kept_until(job: Job, now: int) -> int:
    """Return until when a job's key is kept, at the least."""
    return now + milliseconds(KEY_RETENTION_SECONDS if job.key_ttl is None else job.key_ttl)


class Crossing(Record):
    """What a call says of jobs that come out of an outbox."""

    heard: int
    """What the server's clock said before they were taken."""
    gone: bytes = b""
    """Ids of jobs whose rows are gone from the outbox."""


def encode(jobs: Sequence[Job], now: int, *, has_keys: bool = True, crossing: Crossing | None = None) -> list[bytes]:
    """Return the arguments of a call; with several partitions keys are kept elsewhere."""
    lanes: dict[str, int] = {}
    heads: list[bytes] = []
    keys: list[bytes] = []
    records: list[bytes] = []
    for number, job in enumerate(jobs, start=1):
        raw = id_to_bytes(job.id)
        lane = lanes.setdefault(lane_of(job), len(lanes) + 1)
        heads.append(_HEAD.pack(raw, lane, NUMBERS[job.waiting_for], job.due_at, job.version & 0xFFFF))
        records.append(pack(job, raw))
        if job.key and has_keys:
            keys.append(_KEY.pack(number, key_of(job), kept_until(job, now)))
    parts = [b"".join(heads), b"".join(keys), *records]
    if crossing is None:
        return [_encode((now, tuple(lanes))), *parts]
    return [_encode((now, tuple(lanes), crossing.heard)), *parts, crossing.gone]
