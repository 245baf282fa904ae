"""Causes in the tables of a SQL database: what a batch of changes adds to them, and how pages are read.

`cause` has the count of each group, `cause_hour` the counts by the hour. The first and the last of a group of dead jobs
are read from the index of ended jobs, so that they are always true.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from reprieve.stores.causes import (
    FailureNames,
    GroupKey,
    Kind,
    Listing,
    Place,
    first_hour,
    hour_of,
    hours_from,
    listing_of,
    oldest_hour,
    read_cursor,
    write_cursor,
)
from reprieve.stores.protocol import HOUR_MS, MAX_COUNTED_CAUSES, CauseGroup, CausePage, CauseRequest
from reprieve.stores.sql.tx import SqlTx, Statements

DEAD, LIVING = 0, 1
"""What a row counts: dead jobs, or failures that jobs survived."""

_MAX_VALUE: Final = 1 << 53
_AFTER_ALL_NAMES: Final = "\U0010ffff"

_COLUMNS: Final[dict[Kind, dict[str, str]]] = {
    "f": {"fingerprint": "name"},
    "c": {"code": "name"},
    "t": {"tenant": "name"},
    "k": {"task": "name"},
    "x": {"death": "name"},
    "p": {"tenant": "scope", "fingerprint": "name"},
    "h": {"tenant": "name", "fingerprint": "scope"},
}
"""Which dead jobs belong to a group: columns that an index of ended jobs begins with, and what they must be."""


@cache
def _ends(statement: str, kind: Kind) -> str:
    """Return the statement that reads the ends of groups of a kind.

    In `{range}` columns are not said to be equal to their values, but between them. Then only the index that begins
    with them has the order of the statement, and the server cannot look for the first row along another one.
    """
    columns = ", ".join(f"ended.{column}" for column in _COLUMNS[kind])
    wanted = ", ".join(f"v.{value}" for value in _COLUMNS[kind].values())
    parts = {
        "condition": f"({columns}) = ({wanted})",
        "range": f"({columns}) >= ({wanted}) and ({columns}) <= ({wanted})",
        "columns": columns,
        "columns_descending": ", ".join(f"ended.{column} desc" for column in _COLUMNS[kind]),
    }
    for name, text in parts.items():
        statement = statement.replace(f"{{{name}}}", text)
    return statement


class _Seen:
    """How often a group was seen in a batch, when, and in which job last."""

    __slots__ = ("count", "first_at", "last_at", "sample")

    def __init__(self, at: int) -> None:
        self.count, self.first_at, self.last_at, self.sample = 0, at, at, ""

    def add(self, at: int, sample: str) -> None:
        self.count += 1
        self.first_at = min(self.first_at, at)
        if at >= self.last_at:
            self.last_at, self.sample = at, sample


class CauseCounts:
    """What a batch of changes does to the counts of causes, summed by group."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._seen: dict[tuple[int, GroupKey], _Seen] = {}
        self._hours: Counter[tuple[int, GroupKey, int]] = Counter()
        self._removed: Counter[GroupKey] = Counter()

    def add_dead(self, names: FailureNames, at: int) -> None:
        """Count a job that dies at this time."""
        self._add(DEAD, names, at, "")

    def add_living(self, names: FailureNames, at: int, job_id: str) -> None:
        """Count a failure that a job survives."""
        self._add(LIVING, names, at, job_id)

    def remove_dead(self, names: FailureNames) -> None:
        """Uncount a dead job that waits again, or is deleted."""
        self._removed.update(names.groups())

    def _add(self, fate: int, names: FailureNames, at: int, sample: str) -> None:
        hour = hour_of(at)
        for group in names.groups():
            seen = self._seen.get((fate, group))
            if seen is None:
                seen = self._seen[fate, group] = _Seen(at)
            seen.add(at, sample)
            if group.kind != "h":
                self._hours[fate, group, hour] += 1

    def seen_rows(self) -> list[tuple[object, ...]]:
        """Return what is added to rows of `cause`."""
        return [
            (fate, *group, seen.count, seen.first_at, seen.last_at, seen.sample)
            for (fate, group), seen in self._seen.items()
        ]

    def hour_rows(self) -> list[tuple[object, ...]]:
        """Return what is added to rows of `cause_hour`."""
        return [(fate, *group, hour, count) for (fate, group, hour), count in self._hours.items()]

    def removed_rows(self) -> list[tuple[object, ...]]:
        """Return what is taken from rows of dead jobs in `cause`, after the index of ended jobs was changed."""
        return [(*group, count) for group, count in self._removed.items()]


class PrunedHour(NamedTuple):
    """A row of `cause_hour` that was deleted."""

    fate: int
    kind: Kind
    scope: str
    name: str
    number: int


def pruned_living(rows: Iterable[PrunedHour]) -> list[tuple[object, ...]]:
    """Return what is taken from rows of living jobs in `cause` when hours are deleted."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        if row.fate == LIVING:
            counts[row.kind, row.scope, row.name] += row.number
            if row.kind == "p":
                counts["h", row.name, row.scope] += row.number
    return [(*group, count) for group, count in counts.items()]


def prune_limits(now: int, max_rows: int) -> dict[str, int]:
    """Return which hours are deleted, and how many rows at a time."""
    return {
        "dead_before": oldest_hour(now, is_living=False),
        "living_before": oldest_hour(now, is_living=True),
        "max_rows": max_rows,
    }


class _Group(NamedTuple):
    """A row of `cause`."""

    name: str
    number: int
    first_at: int
    last_at: int
    sample: str


class _Ends(NamedTuple):
    """The first and the last job of a group in the index of ended jobs."""

    first_at: int
    last_at: int
    sample_id: str


def read_page(tx: SqlTx, sql: Statements, request: CauseRequest, now: int, public_id: Callable[..., str]) -> CausePage:
    """Return a page of groups; `public_id` makes the id of a job out of the last columns of the statement `ends`."""
    listing = listing_of(request)
    wanted = {
        "fate": int(listing.is_living),
        "kind": listing.kind,
        "scope": listing.scope,
        "since": oldest_hour(now, is_living=True) * HOUR_MS if listing.is_living else 0,
        "most": MAX_COUNTED_CAUSES + 1,
    }
    rows, cursor = _rows(tx, sql, request, wanted)
    names = msgspec.json.encode([row.name for row in rows]).decode()
    hours = _hours(tx, sql, listing, names, request, now)
    ends: dict[str, _Ends] = {}
    if not listing.is_living and rows:
        statement = _ends(sql["ends"], listing.kind)
        for name, first_at, last_at, *columns in tx.all(statement, {"scope": listing.scope, "names": names}):
            ends[name] = _Ends(first_at, last_at, public_id(*columns))
    first = first_hour(request, now)
    (total,) = tx.one(sql["total"], wanted) or (0,)
    return CausePage(
        groups=tuple(_group(row, hours[row.name], first, ends.get(row.name)) for row in rows),
        cursor=cursor,
        total=min(total, MAX_COUNTED_CAUSES),
        is_total_exact=total <= MAX_COUNTED_CAUSES,
    )


def _rows(tx: SqlTx, sql: Statements, request: CauseRequest, wanted: dict[str, Any]) -> tuple[list[_Group], str]:
    """Return the rows of a page, and the cursor of the next."""
    if request.names is not None:
        named = wanted | {"names": msgspec.json.encode(request.names).decode()}
        found = [_Group(*row) for row in tx.all(sql["named"], named)]
        return sorted(found, key=lambda row: _place(request, row), reverse=True), ""
    place = read_cursor(request) or Place(_MAX_VALUE, _AFTER_ALL_NAMES)
    limits = wanted | {"value": place.value, "name": place.name, "limit": request.limit + 1}
    rows = [_Group(*row) for row in tx.all(sql[f"by_{request.order}"], limits)]
    if len(rows) <= request.limit:
        return rows, ""
    rows = rows[: request.limit]
    return rows, write_cursor(request, _place(request, rows[-1]))


def _place(request: CauseRequest, row: _Group) -> Place:
    return Place(row.number if request.order == "count" else row.last_at, row.name)


def _hours(
    tx: SqlTx, sql: Statements, listing: Listing, names: str, request: CauseRequest, now: int
) -> dict[str, list[tuple[int, int]]]:
    """Return the counts of groups by hour; of failures that jobs survived, all that count."""
    hours: dict[str, list[tuple[int, int]]] = defaultdict(list)
    since = oldest_hour(now, is_living=True) if listing.is_living else first_hour(request, now)
    wanted = {
        "fate": int(listing.is_living),
        "kind": listing.kind,
        "scope": listing.scope,
        "names": names,
        "since": since,
    }
    if listing.is_living or request.hours:
        # What one fingerprint does to tenants is the same as what it does to each of them.
        for name, hour, count in tx.all(sql["hours_of_tenants" if listing.kind == "h" else "hours"], wanted):
            hours[name].append((hour, count))
    return hours


def _group(row: _Group, hours: Sequence[tuple[int, int]], first: int, ends: _Ends | None) -> CauseGroup:
    """Return a group: of dead jobs if it has ends in their index, else of failures that jobs survived."""
    return CauseGroup(
        name=row.name,
        count=row.number if ends else sum(count for _, count in hours),
        first_at=ends.first_at if ends else row.first_at,
        last_at=ends.last_at if ends else row.last_at,
        sample_id=ends.sample_id if ends else row.sample,
        hours=hours_from(hours, first),
    )
