"""Series in SQL tables: a row for each line, and rows of deltas that wait for the next roll-up."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from reprieve.core.series import (
    MAX_LINES,
    STEPS,
    SUBJECTS,
    Line,
    SeriesDelta,
    SeriesSubject,
    Step,
    merge,
    pack_deltas,
    pack_line,
    sums,
    unpack_line,
)
from reprieve.stores.protocol import MAX_SERIES_NAMES, Retention, Series, SeriesName, SeriesRequest
from reprieve.stores.series import StoredLine, assemble, buckets, rank, ranking_buckets
from reprieve.stores.sql.tx import SqlTx, Statements

MAX_ROWS_PER_ROLL_UP: Final = 500
"""Rows of deltas that one call of `prune` adds to lines."""

_encode = msgspec.json.Encoder().encode
_STEP_NUMBERS: Final = {step: number for number, step in enumerate(STEPS)}
_SUBJECT_NUMBERS: Final = {subject: number for number, subject in enumerate(SUBJECTS)}


class LineRow(NamedTuple):
    """A row of a line."""

    step: int
    at: int
    subject: int
    name: str
    packed: bytes


WriteLines: TypeAlias = Callable[[Sequence[LineRow]], None]
"""Writes rows, over those that are there."""


def add_deltas(tx: SqlTx, sql: Statements, deltas: Sequence[SeriesDelta]) -> None:
    """Keep what was counted for the next roll-up."""
    if deltas:
        tx.execute(sql["add_delta"], {"packed": pack_deltas(deltas)})


def roll_up(tx: SqlTx, sql: Statements, deltas: Iterable[SeriesDelta], retention: Retention, write: WriteLines) -> None:
    """Add deltas to their lines. The caller deletes their rows in the same transaction."""
    added = sums(deltas, retention.series_before())
    if not added:
        return
    wanted = [
        {"step": _STEP_NUMBERS[bucket.step], "at": bucket.at, "subject": _SUBJECT_NUMBERS[bucket.subject]}
        for bucket in added
    ]
    stored: dict[tuple[int, int, int], dict[str, Line]] = {}
    for step, at, subject, name, packed in tx.all(sql["lines_of_buckets"], {"buckets": _json(wanted)}):
        stored.setdefault((step, at, subject), {})[name] = unpack_line(packed)
    rows: list[LineRow] = []
    for bucket, lines in added.items():
        key = _STEP_NUMBERS[bucket.step], bucket.at, _SUBJECT_NUMBERS[bucket.subject]
        changed = merge(stored.get(key, {}), lines, MAX_LINES[bucket.subject])
        rows += (LineRow(*key, name, pack_line(line)) for name, line in changed.items())
    # In one order, so that rows that are read together lie together.
    write(sorted(rows))


def series(tx: SqlTx, sql: Statements, request: SeriesRequest) -> list[Series]:
    """Return the series of names."""
    names = request.names or ("",) if request.subject == "all" else request.names
    if not names:
        ranked = series_names(tx, sql, request.subject, request.since_at, request.until_at, MAX_SERIES_NAMES)
        names = tuple(one.name for one in ranked)
    wanted = {
        **_of(request.step, request.subject),
        "names": _json(names),
        "ats": _json(list(buckets(request.since_at, request.until_at, request.step))),
    }
    return assemble(request, names, _lines(tx.all(sql["lines_of_names"], wanted)))


def series_names(
    tx: SqlTx, sql: Statements, subject: SeriesSubject, since_at: int, until_at: int, limit: int
) -> list[SeriesName]:
    """Return names that have lines, those with the most jobs first."""
    step, ats = ranking_buckets(since_at, until_at)
    wanted = {**_of(step, subject), "ats": _json(list(ats))}
    return rank(_lines(tx.all(sql["lines_of_subject"], wanted)), limit)


def expired(retention: Retention) -> Iterator[dict[str, int]]:
    """Return for each step the number of the step and the instant before which its lines are deleted."""
    for step, before in retention.series_before().items():
        yield {"step": _STEP_NUMBERS[step], "before": before}


def _of(step: Step, subject: SeriesSubject) -> dict[str, int]:
    return {"step": _STEP_NUMBERS[step], "subject": _SUBJECT_NUMBERS[subject]}


def _lines(rows: Iterable[tuple[str, int, bytes]]) -> Iterator[StoredLine]:
    return (StoredLine(name, at, unpack_line(packed)) for name, at, packed in rows)


def _json(value: object) -> str:
    return _encode(value).decode()
