"""Named SQL statements, read from the files in `sql/`, and statements that run on many rows at once."""

import sqlite3
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import TypeAlias

Tx: TypeAlias = sqlite3.Connection | sqlite3.Cursor
"""Where statements run: a connection of the store, or a cursor of the caller's connection."""

_ROW_COUNTS = (1, 2, 4, 8, 16, 32, 64, 100, 128, 192, 256, 384, 512)


@cache
def statements(name: str) -> dict[str, str]:
    """Read `sql/<name>.sql`: statements by the name in the `-- name:` line above each."""
    text = (files(__package__ or "") / "sql" / f"{name}.sql").read_text("utf-8")
    parts = [part.split("\n", 1) for part in text.split("-- name: ")[1:]]
    return {title.strip(): body.strip().rstrip(";") for title, body in parts}


@cache
def _filled(sql: str, rows: int, width: int) -> str:
    # Cached, because the sqlite3 module finds a prepared statement by its text: a new string is hashed every time.
    row = "(" + ",".join("?" * width) + ")"
    return sql.replace("{values}", ",".join([row] * rows))


def run(tx: Tx, sql: str, rows: Sequence[Sequence[object]]) -> None:
    """Run a statement on many rows, which replace `{values}` as a list of row values.

    Every step of a statement releases the interpreter's lock, so few steps are fast. A statement whose text is known
    needs no parsing, so the list is padded to one of a few lengths with rows of nulls, which the statement must ignore.
    """
    width = len(rows[0]) if rows else 0
    for start in range(0, len(rows), _ROW_COUNTS[-1]):
        part = rows[start : start + _ROW_COUNTS[-1]]
        size = _ROW_COUNTS[bisect_left(_ROW_COUNTS, len(part))]
        parameters = list(chain.from_iterable(part))
        parameters += [None] * (width * (size - len(part)))
        tx.execute(_filled(sql, size, width), parameters)
