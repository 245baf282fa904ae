"""Pages of the audit log: which index a filter reads, from where, and what of it makes a page. All stores share it."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from reprieve.core.audit import AuditEntry
from reprieve.core.record import Record
from reprieve.errors import InvalidCursor
from reprieve.stores.protocol.audit import MAX_AUDIT_EXAMINED, AuditFilter, AuditPage

AuditIndex: TypeAlias = Literal["all", "tenant", "actor", "subject"]

MAX_NUMBER: Final = (1 << 48) - 1
"""The largest time, and the largest position in a partition."""

_MAX_DIGITS: Final = 18  # less than 64 bits
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AuditEntry).decode


class AuditPlace(NamedTuple):
    """Where an entry is in the log: at its time, and among those of the same time by its position."""

    at: int
    position: int


class AuditRow(NamedTuple):
    """An entry as it is stored."""

    place: AuditPlace
    packed: bytes


class AuditRange(Record):
    """What one read of the log is about."""

    index: AuditIndex
    wanted: AuditFilter
    start: AuditPlace
    """The read goes on behind this place."""
    end_at: int
    """The last time, in the order of the read, that belongs to it."""
    count: int
    """Rows to read at most."""

    @property
    def is_newest_first(self) -> bool:
        """Whether later entries come first."""
        return self.wanted.is_newest_first


def pack_entry(entry: AuditEntry) -> bytes:
    """Return an entry as it is stored; its position is stored beside it."""
    return _encode(entry)


def unpack_entry(packed: bytes) -> AuditEntry:
    """Return an entry as `pack_entry` has packed it; raises a `MsgspecError`."""
    return _decode(packed)


def plan(wanted: AuditFilter, cursor: str, limit: int) -> AuditRange:
    """Return what to read for a page; raises `InvalidCursor`."""
    index = _index_of(wanted)
    first, last = wanted.since_at or 0, MAX_NUMBER if wanted.until_at is None else wanted.until_at - 1
    if wanted.is_newest_first:
        start, end_at = AuditPlace(last + 1, -1), first
    else:
        start, end_at = AuditPlace(first, -1), last
    if cursor:
        start = _parse(cursor, wanted)
    count = MAX_AUDIT_EXAMINED if _has_other_fields(wanted, index) else limit + 1
    return AuditRange(index=index, wanted=wanted, start=start, end_at=end_at, count=count)


def page_of(read: AuditRange, rows: Iterable[AuditRow], limit: int, *, has_more: bool) -> AuditPage:
    """Return the page that rows make, in their order; `has_more` says that there may be rows behind them.

    An entry that cannot be read, because a later release wrote it, is left out.
    """
    found: list[AuditEntry] = []
    last: AuditPlace | None = None
    for row in rows:
        if len(found) == limit:
            has_more = True
            break
        last = row.place
        entry = _unpack(row)
        if entry is not None and _matches(read.wanted, entry):
            found.append(entry)
    return AuditPage(entries=tuple(found), cursor=_cursor(last, read.wanted) if has_more and last is not None else "")


def merged(read: AuditRange, parts: Sequence[Sequence[AuditRow]]) -> tuple[list[AuditRow], bool]:
    """Return the rows of several partitions in order, and whether there may be more.

    A partition that has more than it was asked for may have rows up to its last one only: the others wait for it.
    """
    sign = -1 if read.is_newest_first else 1

    def order(row: AuditRow) -> tuple[int, int]:
        return sign * row.place.at, sign * row.place.position

    ends = [order(rows[-1]) for rows in parts if len(rows) >= read.count]
    end = min(ends, default=None)
    rows = sorted((row for rows in parts for row in rows), key=order)
    return [row for row in rows if end is None or order(row) <= end], end is not None


def _index_of(wanted: AuditFilter) -> AuditIndex:
    if wanted.scope is not None:
        # Any other index would tell when others acted, by the ends of its pages.
        return "tenant"
    if wanted.kind is not None and wanted.name is not None:
        return "subject"
    if wanted.actor:
        return "actor"
    return "all" if wanted.tenant is None else "tenant"


def _has_other_fields(wanted: AuditFilter, index: AuditIndex) -> bool:
    """Whether a filter asks for more than its index and its times."""
    fields = {
        "subject": wanted.kind is not None,
        "actor": bool(wanted.actor),
        "tenant": wanted.tenant is not None,
        "action": wanted.action is not None,
    }
    return any(is_given for field, is_given in fields.items() if field != index)


def _matches(wanted: AuditFilter, entry: AuditEntry) -> bool:
    return (
        (not wanted.actor or entry.actor == wanted.actor)
        and (wanted.action is None or entry.action == wanted.action)
        and (wanted.kind is None or entry.kind == wanted.kind)
        and (wanted.name is None or entry.name == wanted.name)
        and (wanted.tenant is None or entry.tenant == wanted.tenant)
    )


def _unpack(row: AuditRow) -> AuditEntry | None:
    try:
        return replace(_decode(row.packed), position=row.place.position)
    except msgspec.MsgspecError:
        return None


def _digest(wanted: AuditFilter) -> str:
    return f"{zlib.crc32(_encode(wanted)):08x}"


def _cursor(place: AuditPlace, wanted: AuditFilter) -> str:
    return f"{place.at}.{place.position}.{_digest(wanted)}"


def _parse(cursor: str, wanted: AuditFilter) -> AuditPlace:
    at, _, rest = cursor.partition(".")
    position, _, digest = rest.partition(".")
    is_number = all(text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS for text in (at, position))
    if not is_number or digest != _digest(wanted):
        message = f"cursor {cursor[:80]!r} does not belong to this filter of the audit log; begin again without one"
        raise InvalidCursor(message)
    return AuditPlace(int(at), int(position))
