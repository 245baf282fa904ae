"""SQL from the files beside this module, each a list of named statements, and rows as parameters."""

import sqlite3
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import TypeAlias

Tx: TypeAlias = sqlite3.Connection | sqlite3.Cursor
"""Where statements are run: a connection of ours, or a cursor on somebody else's."""

_SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 128, 192, 256, 384, 512)


@cache
def statements(name: str) -> dict[str, str]:
    """Read `sql/<name>.sql`: statements by the name in the `-- name:` line above each."""
    text = (files(__package__ or "") / "sql" / f"{name}.sql").read_text("utf-8")
    parts = [part.split("\n", 1) for part in text.split("-- name: ")[1:]]
    return {title.strip(): body.strip().rstrip(";") for title, body in parts}


@cache
def _filled(sql: str, rows: int, width: int) -> str:
    # The text itself is kept, since SQLite's module looks a statement up by it: a new one would be hashed every time.
    row = "(" + ",".join("?" * width) + ")"
    return sql.replace("{values}", ",".join([row] * rows))


def run(tx: Tx, sql: str, rows: Sequence[Sequence[object]]) -> None:
    """Run a statement on many rows at once, which stand in place of `{values}`.

    A step of a statement gives up the interpreter's lock, so there must be few of them; and a statement that was seen
    before needs no parsing, so rows are padded with nulls to a few sizes. The statement must ignore rows of nulls.
    """
    width = len(rows[0]) if rows else 0
    for start in range(0, len(rows), _SIZES[-1]):
        part = rows[start : start + _SIZES[-1]]
        size = _SIZES[bisect_left(_SIZES, len(part))]
        parameters = list(chain.from_iterable(part))
        parameters += [None] * (width * (size - len(part)))
        tx.execute(_filled(sql, size, width), parameters)
