"""Connections of callers, of any driver or library: one statement joins their transaction.

Libraries are told apart by the module and the methods of a connection, so that none of them has to be installed.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from reprieve.errors import StoreError, ValidationError
from reprieve.stores.capabilities import ParameterStyle
from reprieve.stores.postgres.error_mapping import translate

_PARAMETER = re.compile(r"%\((\w+)\)s")
_NO_DJANGO_TRANSACTION = "Django has no open transaction; enqueue inside `with transaction.atomic()`"
_NO_TRANSACTION = "the connection has no open transaction; use it inside one, such as `with connection.transaction()`"


class Statement(msgspec.Struct, frozen=True):
    """A statement and its parameters, which are texts, bytes and numbers only."""

    text: str
    parameters: dict[str, Any]

    def written(self, style: ParameterStyle) -> tuple[str, dict[str, Any] | list[Any]]:
        """Return the statement and its parameters in the style of a driver."""
        if style == "pyformat":
            return self.text, self.parameters
        if style == "named":
            return _PARAMETER.sub(r":\1", self.text), self.parameters
        names = list(dict.fromkeys(_PARAMETER.findall(self.text)))
        numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", self.text)
        return numbered, [self.parameters[name] for name in names]


def is_asynchronous(connection: object) -> bool:
    """Whether a connection has to be awaited."""
    return isinstance(connection, psycopg.AsyncConnection) or _origin(connection) in ("asyncpg", "sqlalchemy.ext")


def run(connection: Any, statement: Statement) -> list[str]:  # noqa: ANN401 - of any library
    """Run the statement on a connection of psycopg, SQLAlchemy, Django, or any other with cursors."""
    if is_asynchronous(connection):
        message = "the connection is asynchronous; enqueue with aenqueue, and await it"
        raise ValidationError(message)
    with _translated_errors():
        if isinstance(connection, psycopg.Connection):
            _require_transaction(connection)
            row = connection.cursor(row_factory=tuple_row).execute(*_pyformat(statement)).fetchone()
            return _ids(row)
        if _origin(connection).startswith("sqlalchemy"):
            return _ids(_of_session(connection).execute(*_named(statement)).fetchone())
        if not hasattr(connection, "cursor"):
            message = f"a {type(connection).__name__} is not a connection to PostgreSQL; pass one"
            raise ValidationError(message)
        if getattr(connection, "in_atomic_block", True) is False:
            raise StoreError(_NO_DJANGO_TRANSACTION)
        with connection.cursor() as cursor:
            cursor.execute(*_pyformat(statement))
            return _ids(cursor.fetchone())


async def arun(connection: Any, statement: Statement) -> list[str]:  # noqa: ANN401 - of any library
    """Run the statement on a connection of psycopg, asyncpg or SQLAlchemy that has to be awaited."""
    with _translated_errors():
        if isinstance(connection, psycopg.AsyncConnection):
            _require_transaction(connection)
            cursor = await connection.cursor(row_factory=tuple_row).execute(*_pyformat(statement))
            return _ids(await cursor.fetchone())
        if _origin(connection) == "asyncpg":
            if not connection.is_in_transaction():
                raise StoreError(_NO_TRANSACTION)
            text, parameters = statement.written("numbered")
            return _ids(await connection.fetchrow(text, *parameters))
        found = _of_session(connection)
        connected = connection if found is connection else await found
        return _ids((await connected.execute(*_named(statement))).fetchone())


def _origin(connection: object) -> str:
    """Return the library of a connection."""
    names = type(connection).__module__.split(".")
    return ".".join(names[:2]) if names[0] == "sqlalchemy" else names[0]


def _of_session(connection: Any) -> Any:  # noqa: ANN401 - SQLAlchemy's own
    """Return the connection of a session of SQLAlchemy's, or the connection itself."""
    return connection.connection() if callable(getattr(type(connection), "connection", None)) else connection


def _pyformat(statement: Statement) -> tuple[Any, Any]:
    return statement.written("pyformat")


def _named(statement: Statement) -> tuple[Any, Any]:
    from sqlalchemy import text  # noqa: PLC0415 - installed where such a connection exists

    words, parameters = statement.written("named")
    return text(words), parameters


def _ids(row: Any) -> list[str]:  # noqa: ANN401 - a row of any library
    return msgspec.json.decode(row[0], type=list[str]) if row else []


def _require_transaction(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if connection.autocommit and connection.info.transaction_status != TransactionStatus.INTRANS:
        raise StoreError(_NO_TRANSACTION)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Translate errors of psycopg; errors of other drivers pass as they are."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error
