"""The write of an entry, with everything that it carries, in one transaction."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from reprieve.core.audit import Author
from reprieve.errors import StoreError
from reprieve.stores.protocol import ChangeResult, EntryWrite, EntryWritten, entry_audit, repeated
from reprieve.stores.sql.audit import record_audit
from reprieve.stores.sql.entries import compare_and_set
from reprieve.stores.sql.tx import SqlTx, Statements

Carried: TypeAlias = tuple[Sequence[str], Sequence[ChangeResult]]
"""The ids of the jobs that were enqueued, and the results of the changes."""


class NothingWritten(StoreError):
    """That the transaction is to be rolled back, and what the caller is told then."""

    def __init__(self, written: EntryWritten | None) -> None:
        """Take what the caller is told; None: the transaction is to be repeated."""
        super().__init__("nothing was written with the entry")
        self.written = written


def write_entry(
    tx: SqlTx,
    statements: Callable[[str], Statements],
    write: EntryWrite,
    now: int,
    author: Author,
    carried: Callable[[], Carried],
) -> EntryWritten:
    """Set or delete an entry, with its audit entry and what it carries; return what was written.

    Raises `NothingWritten` if the transaction is to be rolled back: the entry has another version, a change does not
    apply, or an earlier call has written all of it.
    """
    done = compare_and_set(tx, statements("entries"), write, now)
    if done is None:
        raise NothingWritten(EntryWritten(entry=None))
    if done.is_repeated:
        raise NothingWritten(repeated(write, done.entry))
    audit = entry_audit(write, now, author)
    record_audit(tx, statements("audit"), () if audit is None else (audit,))
    ids, results = carried()
    if any(result != "applied" for result in results):
        raise NothingWritten(EntryWritten(entry=None, results=tuple(results)))
    return EntryWritten(entry=done.entry, ids=tuple(ids), results=tuple(results))
