"""New jobs and changes that an entry is written with, as update_limits.lua reads them."""

from typing import Final, NamedTuple

from reprieve.stores.protocol import EntryWrite
from reprieve.stores.redis import enqueue, settle
from reprieve.stores.redis.records import lane_of


class CarriedArguments(NamedTuple):
    """What a call carries beside an entry and limits."""

    lanes: tuple[str, ...] = ()
    """The lanes of the jobs."""
    job_count: int = 0
    arguments: tuple[bytes, ...] = (b"", b"", b"", b"")
    """Heads, keys, events and records of jobs, then heads and details of changes."""


NOTHING_CARRIED: Final = CarriedArguments()


def carried_arguments(write: EntryWrite, now: int, *, has_keys: bool) -> CarriedArguments:
    """Return what a write carries; with several partitions unique keys are kept elsewhere."""
    _, *jobs = enqueue.encode(write.jobs, now, has_keys=has_keys)
    lanes = tuple(dict.fromkeys(lane_of(job) for job in write.jobs))
    return CarriedArguments(lanes, len(write.jobs), (*jobs, *settle.encode(write.changes, "", now)))
