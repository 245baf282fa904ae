"""Succeeded jobs: one row for each settlement holds its jobs, packed together."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from reprieve.core.job import Job

pack_jobs = msgspec.msgpack.Encoder().encode
"""Pack jobs, or jobs that are packed already (`msgspec.Raw`), into one row."""

unpack_jobs = msgspec.msgpack.Decoder(list[Job]).decode
"""Return the jobs of one row."""


class FinishedRow(NamedTuple):
    """A row of succeeded jobs."""

    seq: int
    """Where the row stands: a later settlement has a higher number."""
    jobs: bytes


class Shortened(NamedTuple):
    """The newest jobs of a row, and how many were left out."""

    kept: Sequence[Job]
    deleted: int


def shorten(packed: bytes, count: int) -> Shortened:
    """Return the last `count` jobs of a row."""
    jobs = unpack_jobs(packed)
    return Shortened(jobs[len(jobs) - count :], len(jobs) - count)
