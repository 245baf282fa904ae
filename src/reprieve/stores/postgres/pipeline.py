"""Pipeline mode: the statements of a transaction are sent without waiting; a result is read when it is needed.

This is libpq's pipeline mode with the adapters of psycopg, but without its cursors, which took longer for the eight
statements of a small claim than the server did. What waits for the server is a generator of the socket events that it
waits for, as in psycopg: a thread drives it, or an event loop.
"""

import re
import select
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format, PipelineStatus, TransactionStatus

from reprieve.clock import ticks
from reprieve.stores.postgres.connection import POLL_MS, Connection
from reprieve.stores.postgres.socket_events import socket_event

if TYPE_CHECKING:  # psycopg defines it for type checkers only
    from psycopg.pq.abc import PGresult

MAX_PREPARED_STATEMENTS: Final = 256
"""Statements that one connection prepares; the server plans any others each time."""

StatementKey: TypeAlias = tuple[str, tuple[int, ...]]
"""A statement, and the types of its parameters."""

T = TypeVar("T")
RecordT = TypeVar("RecordT", bound=msgspec.Struct)

Waits: TypeAlias = Generator[int, int, T]
"""Yields events of the socket to wait for, is sent those that happened, and returns a T."""

_PARAMETER = re.compile(r"%\((\w+)\)s")


class Result:
    """The result of a statement, read from the server when it is first used."""

    def __init__(self, pipeline: "Pipeline") -> None:
        """Belong to a statement that was sent."""
        self._pipeline = pipeline
        self.response: PGresult | None = None

    def all(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return self._pipeline.rows(self)

    def one(self) -> tuple[Any, ...] | None:
        """Return the first row."""
        rows = self._pipeline.rows(self)
        return rows[0] if rows else None

    def records(self, kind: type[RecordT]) -> list[RecordT]:
        """Return all rows as records, whose fields are filled from the columns of the same names."""
        rows = self._pipeline.rows(self)
        if not rows or self.response is None:
            return []
        columns = [(self.response.fname(number) or b"").decode() for number in range(self.response.nfields)]
        fields_of = _record_reader(kind, tuple(columns))
        return [kind(*fields_of(row)) for row in rows]


class Pipeline:
    """The statements that were sent over a connection, and the results to come."""

    def __init__(self, connection: Connection) -> None:
        """Take a connection on which nothing is under way."""
        self.connection = connection
        self._libpq = connection.pgconn
        self._adapter = Transformer(connection)
        self._poll = select.poll()
        self._names = 0
        self._prepared: dict[StatementKey, bytes] = {}
        """Names of the statements that the server has prepared."""
        self._preparing: dict[StatementKey, bytes] = {}
        """Names of the statements that it was asked to prepare."""
        self._awaited: deque[Result | StatementKey | None] = deque()
        """What the server still has to respond to: statements, preparations, and None for a Sync."""

    def is_idle(self) -> bool:
        """Whether nothing is under way, so that another thread may use the connection."""
        libpq = self._libpq
        is_sent = libpq.pipeline_status == PipelineStatus.OFF
        return is_sent and libpq.transaction_status == TransactionStatus.IDLE

    def begin(self) -> None:
        """Enter pipeline mode."""
        self._libpq.enter_pipeline_mode()

    def send(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Result:
        """Send a statement, without waiting for its result."""
        text, names = _parse(statement)
        values = self._adapter.dump_sequence([(parameters or {})[name] for name in names], _formats(len(names)))
        types, formats = self._adapter.types or (), self._adapter.formats
        name = self._prepare((statement, types), text)
        if name is None:
            self._libpq.send_query_params(text, values, types, formats, Format.BINARY)
        else:
            self._libpq.send_query_prepared(name, values, formats, Format.BINARY)
        result = Result(self)
        self._awaited.append(result)
        return result

    def sync(self) -> None:
        """Send a Sync. Statements outside of a transaction are one transaction up to here."""
        self._libpq.pipeline_sync()
        self._awaited.append(None)

    def end(self) -> None:
        """Wait for all results, and leave pipeline mode."""
        self._drive(self._end())

    async def aend(self) -> None:
        """Do the same in the running event loop, which goes on meanwhile."""
        await self._adrive(self._end())

    def _end(self) -> Waits[None]:
        yield from self._flush()
        while self._awaited:
            yield from self._receive()
        self._libpq.exit_pipeline_mode()
        # An idle connection need not keep its last result in memory.
        self._adapter.set_pgresult(None)

    def abort(self) -> None:
        """Discard all results and roll back; close a connection on which that fails."""
        with self._aborted():
            self._drive(self._discard())
            self.connection.rollback()

    async def aabort(self) -> None:
        """Do the same in the running event loop, where no transaction was begun."""
        with self._aborted():
            await self._adrive(self._discard())

    @contextmanager
    def _aborted(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error:
            # Its next user would read the results of this one.
            self.connection.close()
        self._awaited.clear()
        self._preparing.clear()
        self._adapter.set_pgresult(None)

    def _discard(self) -> Waits[None]:
        self.sync()
        yield from self._flush()
        while self._awaited:
            yield from self._next_response()
        self._libpq.exit_pipeline_mode()

    def rows(self, result: Result) -> list[tuple[Any, ...]]:
        """Wait for a result, and return its rows."""
        if result.response is None:
            if not self._awaited:
                message = "the pipeline was ended before this result was read"
                raise psycopg.InterfaceError(message)
            if self._awaited[-1] is not None:
                # A Sync, not a Flush: only after a Sync the server counts us as idle, and ends a transaction that
                # holds the claim lock if this process stops here.
                self.sync()
        response = result.response or self._drive(self._response_to(result))
        self._adapter.set_pgresult(response, format=Format.BINARY)
        return self._adapter.load_rows(0, response.ntuples, tuple)

    def _response_to(self, result: Result) -> "Waits[PGresult]":
        yield from self._flush()
        while result.response is None:
            yield from self._receive()
        return result.response

    def _prepare(self, key: StatementKey, text: bytes) -> bytes | None:
        """Return the name of a prepared statement, after asking for it if needed; None to send it unprepared."""
        if self.connection.is_pooled:
            return None
        name = self._prepared.get(key) or self._preparing.get(key)
        if name is None and len(self._prepared) + len(self._preparing) < MAX_PREPARED_STATEMENTS:
            self._names += 1
            name = self._preparing[key] = b"reprieve_%d" % self._names
            self._libpq.send_prepare(name, text, key[1])
            self._awaited.append(key)
        return name

    def _receive(self) -> Waits[None]:
        """Receive the next response; raise it if it is an error."""
        awaited, response = yield from self._next_response()
        if response.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(response, "utf-8")
        if response.status == ExecStatus.PIPELINE_ABORTED:
            message = "an earlier statement has failed"
            raise psycopg.errors.PipelineAborted(message)
        if isinstance(awaited, Result):
            awaited.response = response

    def _next_response(self) -> "Waits[tuple[Result | StatementKey | None, PGresult]]":
        """Return the next response, and what it responds to."""
        response = yield from self._read_response()
        awaited = self._awaited.popleft()
        if response is None:
            message = "the connection was lost"
            raise psycopg.OperationalError(message)
        if awaited is not None:
            # libpq ends the responses to one statement with None.
            while (yield from self._read_response()) is not None:
                pass
        if isinstance(awaited, tuple) and response.status == ExecStatus.COMMAND_OK:
            self._prepared[awaited] = self._preparing.pop(awaited)
        return awaited, response

    def _read_response(self) -> "Waits[PGresult | None]":
        while self._libpq.is_busy():
            yield select.POLLIN
            self._libpq.consume_input()
        return self._libpq.get_result()

    def _flush(self) -> Waits[None]:
        while self._libpq.flush():
            # The server may stop reading until its responses are read.
            if (yield select.POLLIN | select.POLLOUT) & select.POLLIN:
                self._libpq.consume_input()

    def _drive(self, waits: Waits[T]) -> T:
        """Run a generator, blocking the calling thread where it waits."""
        try:
            events = next(waits)
            while True:
                self._poll.register(self._libpq.socket, events)
                since = ticks()
                while not (happened := self._poll.poll(POLL_MS)):
                    self.connection.require_response(since)
                events = waits.send(happened[0][1])
        except StopIteration as end:
            result: T = end.value
            return result

    async def _adrive(self, waits: Waits[T]) -> T:
        """Run a generator in the running event loop."""
        try:
            events = next(waits)
            while True:
                events = waits.send(await socket_event(self.connection, events))
        except StopIteration as end:
            result: T = end.value
            return result


@cache
def _parse(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with `$1` … as the server reads it, and the names of its parameters in that order."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(statement)))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", statement).encode(), names


@cache
def _formats(count: int) -> tuple[PyFormat, ...]:
    return (PyFormat.AUTO,) * count


@cache
def _record_reader(
    kind: type[msgspec.Struct], columns: tuple[str, ...]
) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that picks the fields of a record out of a row with these columns."""
    fields = kind.__struct_fields__
    if fields == columns:
        return lambda row: row
    positions = [columns.index(field) for field in fields]
    return itemgetter(*positions) if len(positions) > 1 else lambda row: (row[positions[0]],)
