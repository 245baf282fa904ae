"""Succeeded jobs: one row for each settlement holds its jobs, packed together."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from reprieve.core.job import Job

pack_jobs = msgspec.msgpack.Encoder().encode
"""Pack jobs, or jobs that are packed already (`msgspec.Raw`), into one row."""

_decode_all = msgspec.msgpack.Decoder(list[Job]).decode
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_one = msgspec.msgpack.Decoder(Job).decode


class FinishedRow(NamedTuple):
    """A row of succeeded jobs."""

    seq: int
    """Where the row stands: a later settlement has a higher number."""
    jobs: bytes


class Shortened(NamedTuple):
    """The newest jobs of a row, and how many were left out."""

    kept: Sequence[Job]
    deleted: int


def unpack_jobs(packed: bytes) -> list[Job]:
    """Return the jobs of one row; those that cannot be read are left out."""
    try:
        return _decode_all(packed)
    except msgspec.MsgspecError:
        return list(_readable(packed))


def _readable(packed: bytes) -> Iterator[Job]:
    with contextlib.suppress(msgspec.MsgspecError):
        for job in _split(packed):
            with contextlib.suppress(msgspec.MsgspecError):
                yield _decode_one(job)


def shorten(packed: bytes, count: int) -> Shortened | None:
    """Return the last `count` jobs of a row; None if the row cannot be read: it is deleted as a whole, later."""
    try:
        jobs = _decode_all(packed)
    except msgspec.MsgspecError:
        return None
    return Shortened(jobs[len(jobs) - count :], len(jobs) - count)
