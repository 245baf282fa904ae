"""Reads of the audit log: each partition has the entries of its own subjects, and a page merges them by time."""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from reprieve.core.ids import PARTITIONS
from reprieve.stores.audit_pages import (
    MAX_NUMBER,
    AuditPlace,
    AuditRange,
    AuditRow,
    merged,
    pack_entry,
    page_of,
    plan,
    unpack_entry,
)
from reprieve.stores.protocol import AuditFilter, AuditPage
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.partitions import Partitions

_HALF: Final = 6
"""Bytes of a time, and of a number."""
_WITH_FIELDS: Final = b"\xc1"
"""The first byte of an entry to which a script has added fields: see audit.lua."""
_HEAD: Final = 5
"""Bytes before such an entry: that one, and the length of the entry."""

_decode_fields = msgspec.msgpack.Decoder(dict[str, Any]).decode


class AuditReads:
    """Reads the audit logs of all partitions."""

    def __init__(self, partitions: Partitions) -> None:
        """Take the partitions."""
        self._partitions = partitions

    async def page(self, wanted: AuditFilter, cursor: str, limit: int) -> AuditPage:
        """Return a page of all partitions."""
        read = plan(wanted, cursor, limit)
        partitions = await self._partitions.load()
        parts = await bounded_gather(_rows(partition, read) for partition in partitions)
        rows, has_more = merged(read, parts)
        return page_of(read, rows, limit, has_more=has_more)


async def _rows(partition: Partition, read: AuditRange) -> list[AuditRow]:
    """Return the rows of one partition; one that a prune deletes meanwhile is empty."""
    reads, number = partition.reads, partition.number
    command, start, end = _bounds(read, number)
    places = await reads.command(command, _index_key(read), start, end, "LIMIT", 0, read.count)
    packed = await reads.command("HMGET", "audit", *places) if places else []
    return [
        AuditRow(_read_place(place, number), _whole(entry or b"")) for place, entry in zip(places, packed, strict=True)
    ]


def _whole(stored: bytes) -> bytes:
    """Return a packed entry with the fields that a script has added; nothing for one that is damaged."""
    if stored[:1] != _WITH_FIELDS:
        return stored
    end = _HEAD + int.from_bytes(stored[1:_HEAD], "big")
    try:
        entry, fields = unpack_entry(stored[_HEAD:end]), _decode_fields(stored[end:])
        return pack_entry(replace(entry, **fields))
    except (msgspec.MsgspecError, TypeError):
        return b""


def _index_key(read: AuditRange) -> str:
    wanted = read.wanted
    match read.index:
        case "subject":
            return f"audit_subject:{wanted.kind}:{wanted.name}"
        case "actor":
            return f"audit_actor:{wanted.actor}"
        case "tenant":
            return f"audit_tenant:{wanted.tenant}"
        case "all":
            return "audit_all"


def _bounds(read: AuditRange, partition: int) -> tuple[str, bytes, bytes]:
    """Return the command that reads a range of a partition, and where the range begins and ends."""
    at, position = read.start
    if read.is_newest_first:
        # Numbers below the one that the position stands between, or at.
        first = _bound(b"(", at, -((partition - position) // PARTITIONS))
        return "ZREVRANGEBYLEX", first, _bound(b"[", read.end_at, 0)
    first = _bound(b"[", at, (position - partition) // PARTITIONS + 1)
    return "ZRANGEBYLEX", first, _bound(b"(", read.end_at + 1, 0)


def _bound(bracket: bytes, at: int, number: int) -> bytes:
    """Return a bound of a range, as audit.lua writes places."""
    if at > MAX_NUMBER:
        return b"+"
    return bracket + at.to_bytes(_HALF, "big") + min(max(0, number), MAX_NUMBER).to_bytes(_HALF, "big")


def _read_place(place: bytes, partition: int) -> AuditPlace:
    """Return a place that holds for the whole store."""
    number = int.from_bytes(place[_HALF:], "big")
    return AuditPlace(int.from_bytes(place[:_HALF], "big"), number * PARTITIONS + partition)
