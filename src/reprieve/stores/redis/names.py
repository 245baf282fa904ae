"""Names that begin with a prefix, of all partitions: from lists in the order of bytes, so no hash is scanned."""

from collections.abc import Sequence
from typing import Final

from reprieve.stores.name_cursor import AFTER_ALL_NAMES
from reprieve.stores.protocol import NameSubject
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.partition_reads import PartitionReads

_LETTERS: Final[dict[NameSubject, str]] = {"task": "k", "dependency": "d", "group": "g"}
"""The letters of kept names, as in names.lua."""


async def read_names(partitions: Sequence[Partition], subject: NameSubject, prefix: str, limit: int) -> list[str]:
    """Return the first names of a subject that begin with a prefix, in any partition."""
    found = await bounded_gather(_names(partition.reads, subject, prefix, limit) for partition in partitions)
    return sorted({name for names in found for name in names})[:limit]


async def _names(reads: PartitionReads, subject: NameSubject, prefix: str, limit: int) -> list[str]:
    match subject:
        case "queue":
            queues = [name.decode() for name in await reads.command("HKEYS", "queues")]
            return sorted(name for name in queues if name.startswith(prefix))[:limit]
        case "tenant":
            found = await reads.run("names_of_lanes", "lane_names_by_tenant", prefix, limit)
            return [name.decode() for name in found]
        case "code":
            return [*await _listed(reads, "codes:d", prefix, limit), *await _listed(reads, "codes:l", prefix, limit)]
        case _:
            letter = _LETTERS[subject]
            return [name[1:] for name in await _listed(reads, "names", letter + prefix, limit)]


async def _listed(reads: PartitionReads, key: str, prefix: str, limit: int) -> list[str]:
    found = await reads.command("ZRANGEBYLEX", key, f"[{prefix}", f"[{prefix}{AFTER_ALL_NAMES}", "LIMIT", 0, limit)
    return [name.decode() for name in found]
