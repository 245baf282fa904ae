"""The wire: statements of a transaction go out together, and replies are read when somebody asks for one.

This is libpq's pipeline mode with the driver's adapters, but without its cursors, which took longer for the eight
statements of a small claim than the server did.
"""

import re
import select
from collections import deque
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format, PipelineStatus, TransactionStatus

from reprieve.clock import ticks
from reprieve.stores.postgres.line import Line

if TYPE_CHECKING:  # the driver has it for type checkers alone
    from psycopg.pq.abc import PGresult

PREPARED: Final = 256
"""Statements that a connection prepares at the most; whatever comes after them is planned each time."""

LOOK_EVERY: Final = 200
"""Milliseconds after which somebody who waits looks whether they still may."""

Key: TypeAlias = tuple[str, tuple[int, ...]]
"""A statement, and the types of its parameters."""

_PARAMETER = re.compile(r"%\((\w+)\)s")


class Reply:
    """What the server says to a statement."""

    def __init__(self, wire: "Wire") -> None:
        """Wait for nothing yet."""
        self._wire = wire
        self.result: PGresult | None = None

    def all(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return self._wire.rows(self)

    def one(self) -> tuple[Any, ...] | None:
        """Return the first row."""
        rows = self._wire.rows(self)
        return rows[0] if rows else None


class Wire:
    """What goes over a connection, and what is to come back."""

    def __init__(self, line: Line) -> None:
        """Take a connection on which nothing is under way."""
        self.line = line
        self._libpq = line.pgconn
        self._adapted = Transformer(line)
        self._poll = select.poll()
        self._names = 0
        self._prepared: dict[Key, bytes] = {}
        """Names of the statements that the server knows."""
        self._preparing: dict[Key, bytes] = {}
        """Names of those of which it has not said yet that it does."""
        self._awaited: deque[Reply | Key | None] = deque()
        """Who is to be answered: statements, the preparation of some, and None for the end of everything before it."""

    def is_idle(self) -> bool:
        """Whether nothing is under way, and somebody else may use it."""
        libpq = self._libpq
        is_sent = libpq.pipeline_status == PipelineStatus.OFF
        return is_sent and libpq.transaction_status == TransactionStatus.IDLE

    def begin(self) -> None:
        """Let statements go out together from here on."""
        self._libpq.enter_pipeline_mode()

    def send(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Reply:
        """Send a statement, and wait for nothing."""
        text, names = _parse(statement)
        values = self._adapted.dump_sequence([(parameters or {})[name] for name in names], _formats(len(names)))
        types, formats = self._adapted.types or (), self._adapted.formats
        name = self._prepare((statement, types), text)
        if name is None:
            self._libpq.send_query_params(text, values, types, formats, Format.BINARY)
        else:
            self._libpq.send_query_prepared(name, values, formats, Format.BINARY)
        reply = Reply(self)
        self._awaited.append(reply)
        return reply

    def finish(self) -> None:
        """Have everything done that was sent. What no transaction surrounds is a transaction that ends here."""
        self._libpq.pipeline_sync()
        self._awaited.append(None)

    def end(self) -> None:
        """Wait until everything is answered."""
        self._flush()
        while self._awaited:
            self._hear()
        self._libpq.exit_pipeline_mode()
        # A connection that nobody uses need not keep what was read last.
        self._adapted.set_pgresult(None)

    def abandon(self) -> None:
        """Listen to no reply any more, and roll back; a connection on which that cannot be done is closed."""
        try:
            if not self.line.closed:
                self.finish()
                self._flush()
                while self._awaited:
                    self._take()
                self._libpq.exit_pipeline_mode()
                self.line.rollback()
        except psycopg.Error:
            # Whoever uses it next would wait for replies to us.
            self.line.close()
        self._awaited.clear()
        self._preparing.clear()
        self._adapted.set_pgresult(None)

    def rows(self, reply: Reply) -> list[tuple[Any, ...]]:
        """Wait for a reply, and read it."""
        if reply.result is None:
            if not self._awaited:
                message = "nobody waits for this reply any more"
                raise psycopg.InterfaceError(message)
            if self._awaited[-1] is not None:
                # Not a flush: only who has finished counts as idle, and loses the turn if they stop here for good.
                self.finish()
            self._flush()
        while reply.result is None:
            self._hear()
        self._adapted.set_pgresult(reply.result, format=Format.BINARY)
        return self._adapted.load_rows(0, reply.result.ntuples, tuple)

    def _prepare(self, key: Key, text: bytes) -> bytes | None:
        """Return the name under which the server knows a statement, or will; None if it is sent each time."""
        if self.line.is_pooled:
            return None
        name = self._prepared.get(key) or self._preparing.get(key)
        if name is None and len(self._prepared) + len(self._preparing) < PREPARED:
            self._names += 1
            name = self._preparing[key] = b"reprieve_%d" % self._names
            self._libpq.send_prepare(name, text, key[1])
            self._awaited.append(key)
        return name

    def _hear(self) -> None:
        """Take what the server says next, and raise it if it is an error."""
        awaited, result = self._take()
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, "utf-8")
        if result.status == ExecStatus.PIPELINE_ABORTED:
            message = "an earlier statement has failed"
            raise psycopg.errors.PipelineAborted(message)
        if isinstance(awaited, Reply):
            awaited.result = result

    def _take(self) -> "tuple[Reply | Key | None, PGresult]":
        """Take what the server says next, and answer to whom it says it."""
        result = self._next()
        awaited = self._awaited.popleft()
        if result is None:
            message = "the connection was lost"
            raise psycopg.OperationalError(message)
        if awaited is not None:
            # The results of a statement end with nothing.
            while self._next() is not None:
                pass
        if isinstance(awaited, tuple) and result.status == ExecStatus.COMMAND_OK:
            self._prepared[awaited] = self._preparing.pop(awaited)
        return awaited, result

    def _next(self) -> "PGresult | None":
        while self._libpq.is_busy():
            self._wait(select.POLLIN)
            self._libpq.consume_input()
        return self._libpq.get_result()

    def _flush(self) -> None:
        while self._libpq.flush():
            # The server may read no more before somebody has read its answers.
            if self._wait(select.POLLIN | select.POLLOUT) & select.POLLIN:
                self._libpq.consume_input()

    def _wait(self, events: int) -> int:
        """Wait until one of these happens, and answer which."""
        self._poll.register(self._libpq.socket, events)
        since = ticks()
        while not (happened := self._poll.poll(LOOK_EVERY)):
            self.line.bear(since)
        return happened[0][1]


@cache
def _parse(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement as the server reads it, and the names of its parameters in their order."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(statement)))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", statement).encode(), names


@cache
def _formats(count: int) -> tuple[PyFormat, ...]:
    return (PyFormat.AUTO,) * count
