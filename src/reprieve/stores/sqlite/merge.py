"""Ranges of an index, merged in order: each is read a little at a time, as far as it is needed."""

import heapq
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from reprieve.stores.sql.place_steps import After, KeyRow, Stream

MIN_ROWS: Final = 4
"""Rows that are read of a range at first, if there are many ranges."""

Fetch: TypeAlias = Callable[[Stream, After[int], int], list[KeyRow[int]]]
"""Reads so many keys of a range after one of them."""


def merged(fetch: Fetch, streams: Sequence[Stream], after: After[int], most: int, *, newest: bool) -> list[KeyRow[int]]:
    """Return the first keys of all ranges together, in order."""
    if len(streams) == 1:
        return fetch(streams[0], after, most)
    count = max(MIN_ROWS, most // max(1, len(streams)) + 1)
    ranges = [_Range(fetch, stream, after, count, newest=newest) for stream in streams]
    heads = [(one.head, number) for number, one in enumerate(ranges) if one.rows]
    heapq.heapify(heads)
    found: list[KeyRow[int]] = []
    while heads and len(found) < most:
        number = heads[0][1]
        one = ranges[number]
        found.append(one.take())
        if one.rows:
            heapq.heapreplace(heads, (one.head, number))
        else:
            heapq.heappop(heads)
    return found


class _Range:
    """A range of an index, and the rows of it that were read and not taken; empty at the end."""

    def __init__(self, fetch: Fetch, stream: Stream, after: After[int], count: int, *, newest: bool) -> None:
        self._fetch = fetch
        self._stream = stream
        self._count = count
        self._sign = -1 if newest else 1
        self._is_over = False
        self.rows: list[KeyRow[int]] = []
        self._read(after)

    @property
    def head(self) -> tuple[int, int]:
        """What orders the first row among those of other ranges."""
        row = self.rows[-1]
        return self._sign * row.at, self._sign * row.id

    def take(self) -> KeyRow[int]:
        """Remove the first row; read more after the last one."""
        row = self.rows.pop()
        if not self.rows and not self._is_over:
            self._count *= 4
            self._read(After(row.at, row.id))
        return row

    def _read(self, after: After[int]) -> None:
        rows = self._fetch(self._stream, after, self._count)
        self._is_over = len(rows) < self._count
        self.rows = rows[::-1]
