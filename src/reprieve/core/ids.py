"""Job ids: UUIDs of version 7, so they sort by time, fit a `uuid` column and carry their partition.

48 bits of milliseconds, 12 bits of partition, 62 bits of chance. The client makes them, so that an enqueue
repeated after a lost reply is recognised.
"""

import re
from struct import Struct
from uuid import UUID

from reprieve.errors import InvalidId

PARTITIONS = 4096
"""How many partitions an id can name."""

_LATEST = (1 << 48) - 1
_CHANCE = (1 << 62) - 1
_HALVES = Struct(">QQ")
_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def make_id(now: int, chance: int, partition: int = 0) -> str:
    """Make the id of a job created at `now`; `chance` is 62 random bits."""
    if not 0 <= now <= _LATEST or not 0 <= partition < PARTITIONS:
        message = f"an id holds times up to the year 10889 and partitions below {PARTITIONS}, not {now} and {partition}"
        raise InvalidId(message)
    return spell_id(now << 16 | 7 << 12 | partition, 2 << 62 | chance & _CHANCE)


def spell_id(high: int, low: int) -> str:
    """Write an id of two halves of 64 bits."""
    return id_from_bytes(_HALVES.pack(high, low))


def id_from_bytes(data: bytes) -> str:
    """Write an id of its 16 bytes."""
    # Slices of bytes are spelled faster than slices are cut out of a text: every enqueue and claim does this.
    return f"{data[:4].hex()}-{data[4:10].hex('-', 2)}-{data[10:].hex()}"


def id_to_bytes(job_id: str) -> bytes:
    """Return the 16 bytes of an id."""
    return bytes.fromhex(job_id.replace("-", ""))


def is_id(text: object) -> bool:
    """Whether this is an id in its one canonical form."""
    return isinstance(text, str) and _FORM.fullmatch(text) is not None


def parse_id(text: str) -> str:
    """Return the id in its one canonical form, or say that the text is none."""
    try:
        uuid = UUID(text)
    except (ValueError, AttributeError, TypeError):
        uuid = None
    if uuid is None or uuid.version != 7:  # noqa: PLR2004 - the version this module makes
        message = f"{str(text)[:80]!r} is not a job id; ids look like 0192f0c8-7a10-7000-8000-2f6e11c40ae1"
        raise InvalidId(message)
    return str(uuid)


def created_at(job_id: str) -> int:
    """Read the moment of creation out of an id."""
    return int(job_id[:8] + job_id[9:13], 16)


def partition_of(job_id: str) -> int:
    """Read the partition out of an id."""
    return int(job_id[15:18], 16)
