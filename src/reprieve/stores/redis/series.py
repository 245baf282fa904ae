"""Series of a partition: scripts keep what was counted, and a client adds it to the lines of its names."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - an error class by a lower-case name
from typing import Any, Final

import msgspec

from reprieve.core.series import (
    COUNTERS,
    ENQUEUED,
    MAX_LINES,
    MINUTE_MS,
    Bucket,
    Line,
    SeriesDelta,
    merge,
    pack_line,
    sums,
    unpack_deltas,
    unpack_line,
)
from reprieve.stores.protocol import Retention
from reprieve.stores.redis.node import Argument
from reprieve.stores.redis.replies import pairs
from reprieve.stores.series import StoredLine

MAX_DELTAS_PER_ROLL_UP: Final = 1_000
"""Deltas, and about as many counts of enqueues, that one call adds to lines."""

_ENDING: Final = Struct(">d")
_LINE: Final = Struct(">HHI")
_ENDINGS: Final[dict[bytes, Line]] = {b"X": {"expired": 1}, b"C": {COUNTERS.index("cancelled"): 1}}
"""What the deltas count that scripts write, by their first letter."""

_encode = msgspec.msgpack.Encoder().encode


class RollUp:
    """What was counted and is not in the lines yet, as read_series_deltas.lua has read it."""

    def __init__(self, reply: Sequence[Any], retention: Retention) -> None:
        """Take the reply of the script, and how long lines are kept."""
        number, deltas, first, cursor, *enqueued = reply
        self._number = int(number)
        self._deltas: list[bytes] = deltas
        self._cursor: str = cursor.decode()
        self._enqueued: dict[bytes, int] = {field: int(count) for field, count in pairs(enqueued)}
        self._added = sums(self._all(), retention.series_before())
        # Counts that came meanwhile may be before where a read began: only one from beginning to end has seen all.
        is_whole = first == cursor == b"0"
        self.has_more = len(deltas) == MAX_DELTAS_PER_ROLL_UP or not is_whole
        self._is_needed = bool(deltas or enqueued) or first != cursor

    def __bool__(self) -> bool:
        """Whether anything was counted, or the next read begins elsewhere."""
        return self._is_needed

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets of time that it adds to."""
        return list(self._added)

    def arguments(self, stored: Iterable[dict[str, Line]]) -> list[Argument]:
        """Return the arguments of roll_up_series.lua, given the lines of each of its buckets."""
        heads: list[tuple[str, str, str, int]] = []
        rest: list[Argument] = []
        for (bucket, added), lines in zip(self._added.items(), stored, strict=True):
            changed = merge(lines, added, MAX_LINES[bucket.subject])
            heads.append((bucket.step, str(bucket.at), bucket.subject, len(changed)))
            for name, line in changed.items():
                rest += (name, pack_line(line))
        enqueued = [item for field, count in self._enqueued.items() for item in (field.decode(), count)]
        return [_encode((self._number, len(self._deltas), enqueued, heads, self._cursor)), *rest]

    def _all(self) -> Iterator[SeriesDelta]:
        for packed in self._deltas:
            yield from _read_ending(packed) if packed[:1] in _ENDINGS else unpack_deltas(packed)
        for field, count in self._enqueued.items():
            yield from _read_enqueued(field, count)


def _read_enqueued(field: bytes, count: int) -> Iterator[SeriesDelta]:
    minute, _, lane = field.partition(b"\0")
    try:
        yield _delta(int(minute), lane, {ENQUEUED: count})
    except ValueError:
        # Damaged: numbers are lost, and nothing else.
        return


def _read_ending(packed: bytes) -> Iterator[SeriesDelta]:
    try:
        (at,) = _ENDING.unpack_from(packed, 1)
        yield _delta(int(at) // MINUTE_MS, packed[1 + _ENDING.size :], _ENDINGS[packed[:1]])
    except (StructError, ValueError):
        # Damaged: numbers are lost, and nothing else.
        return


def _delta(minute: int, lane: bytes, numbers: Line) -> SeriesDelta:
    queue, tenant, task, dependency, *_ = lane.decode().split("\0")
    return SeriesDelta(minute, queue, task, dependency, tenant, numbers)


def bucket_argument(step: str, subject: str, ats: Iterable[int], names: Sequence[str] = ()) -> bytes:
    """Return which lines read_series.lua is to read."""
    return _encode((step, subject, [str(at) for at in ats], names))


def read_lines(reply: bytes, ats: Sequence[int]) -> list[StoredLine]:
    """Return the lines that read_series.lua has read, of buckets that begin at these instants."""
    lines: list[StoredLine] = []
    start = 0
    while start < len(reply):
        number, name_length, line_length = _LINE.unpack_from(reply, start)
        name_at = start + _LINE.size
        line_at = name_at + name_length
        start = line_at + line_length
        lines.append(StoredLine(reply[name_at:line_at].decode(), ats[number], unpack_line(reply[line_at:start])))
    return lines


def prune_arguments(retention: Retention) -> list[Argument]:
    """Return the arguments of prune_series.lua."""
    return [item for step_and_instant in retention.series_before().items() for item in step_and_instant]
