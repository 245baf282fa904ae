"""Job ids: UUIDs of version 7, so they sort by time, fit a `uuid` column and carry their partition.

48 bits of milliseconds, 12 bits of partition, 62 random bits. The client makes them, so that the store recognises an
enqueue that is repeated after a lost reply.
"""

import re
from struct import Struct
from uuid import UUID

from reprieve.errors import InvalidId, JobNotFound

PARTITIONS = 4096
"""How many partitions an id can name."""

_MAX_TIME_MS = (1 << 48) - 1
_RANDOM_BITS = (1 << 62) - 1
_HALVES = Struct(">QQ")
_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def make_id(now: int, chance: int, partition: int = 0) -> str:
    """Return the id of a job created at `now`; `chance` is 62 random bits."""
    if not 0 <= now <= _MAX_TIME_MS or not 0 <= partition < PARTITIONS:
        message = f"now must be before the year 10889 and partition below {PARTITIONS}, got {now} and {partition}"
        raise InvalidId(message)
    return spell_id(now << 16 | 7 << 12 | partition, 2 << 62 | chance & _RANDOM_BITS)


def spell_id(high: int, low: int) -> str:
    """Return the id with these two halves of 64 bits."""
    return id_from_bytes(_HALVES.pack(high, low))


def id_from_bytes(data: bytes) -> str:
    """Return the id with these 16 bytes."""
    # Formatting slices of bytes is faster than slicing the hex string; every enqueue and claim does this.
    return f"{data[:4].hex()}-{data[4:10].hex('-', 2)}-{data[10:].hex()}"


def id_to_bytes(job_id: str) -> bytes:
    """Return the 16 bytes of an id."""
    return bytes.fromhex(job_id.replace("-", ""))


def is_id(text: object) -> bool:
    """Whether this is an id in its canonical form."""
    return isinstance(text, str) and _FORM.fullmatch(text) is not None


def parse_id(text: str) -> str:
    """Return the id in its canonical form; raise `InvalidId` if the text is not a UUID.

    Raises `JobNotFound` for a UUID that this module does not write: it may be the id of another system.
    """
    try:
        uuid = UUID(text)
    except (ValueError, AttributeError, TypeError):
        message = f"{str(text)[:80]!r} is not a job id; ids look like 0192f0c8-7a10-7000-8000-2f6e11c40ae1"
        raise InvalidId(message) from None
    if uuid.version != 7:  # noqa: PLR2004 - the version that this module writes
        message = f"there is no job {uuid}: job ids are UUIDs of version 7, and this one is of another system"
        raise JobNotFound(message)
    return str(uuid)


def created_at(job_id: str) -> int:
    """Return the time of creation that an id carries, in milliseconds."""
    return int(job_id[:8] + job_id[9:13], 16)


def partition_of(job_id: str) -> int:
    """Return the partition that an id carries."""
    return int(job_id[15:18], 16)
