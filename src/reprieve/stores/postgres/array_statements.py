"""Statements that take the columns of many rows as arrays."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from reprieve.stores.postgres.pipeline import Result
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of, bytes_of

_ARRAY: Final = re.compile(r"%\((\w+)\)s::(\w+)\[\]")


def run(tx: Tx, statement: str, rows: Sequence[Sequence[Any]]) -> Result:
    """Run a statement on many rows at once, given in the order in which it first names its arrays."""
    columns = zip(_arrays(statement), zip(*rows, strict=True), strict=True)
    return tx.execute(statement, {name: _array(kind, values) for (name, kind), values in columns})


@cache
def _arrays(statement: str) -> list[tuple[str, str]]:
    """Return the names and the types of the arrays that a statement takes."""
    return list(dict.fromkeys(_ARRAY.findall(statement)))


def _array(kind: str, values: Sequence[Any]) -> str | list[Any]:
    """Return a column as an array; only texts, which may hold anything, are left to psycopg, which is slower."""
    if kind == "bytea":
        return bytes_of(values)
    return list(values) if kind == "text" else array_of(values)
