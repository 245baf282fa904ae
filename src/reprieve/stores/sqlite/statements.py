"""SQL from the files beside this module, each a list of named statements, and rows as parameters."""

import sqlite3
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TypeAlias

Tx: TypeAlias = sqlite3.Connection | sqlite3.Cursor
"""Where statements are run: a connection of ours, or a cursor on somebody else's."""

_SIZES = (1, 4, 16, 64, 128, 256, 512)


@cache
def statements(name: str) -> dict[str, str]:
    """Read `sql/<name>.sql`: statements by the name in the `-- name:` line above each."""
    text = (files(__package__ or "") / "sql" / f"{name}.sql").read_text("utf-8")
    parts = [part.split("\n", 1) for part in text.split("-- name: ")[1:]]
    return {title.strip(): body.strip().rstrip(";") for title, body in parts}


@cache
def _values(rows: int, width: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return ",".join([row] * rows)


def run(tx: Tx, sql: str, rows: Sequence[Sequence[object]]) -> None:
    """Run a statement on many rows at once, which stand in place of `{values}`.

    A step of a statement gives up the interpreter's lock, so there must be few of them; and a statement that was seen
    before needs no parsing, so rows are padded with nulls to a few sizes. The statement must ignore rows of nulls.
    """
    width = len(rows[0]) if rows else 0
    for start in range(0, len(rows), _SIZES[-1]):
        part = rows[start : start + _SIZES[-1]]
        size = next(size for size in _SIZES if size >= len(part))
        parameters = [value for row in part for value in row]
        parameters += [None] * (width * (size - len(part)))
        tx.execute(sql.replace("{values}", _values(size, width)), parameters)
