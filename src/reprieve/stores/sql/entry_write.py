"""The write of an entry, with everything that it carries, in one transaction."""

from collections.abc import Callable

from reprieve.core.audit import Author
from reprieve.stores.protocol import EntryWrite, EntryWritten, entry_audit
from reprieve.stores.sql.audit import record_audit
from reprieve.stores.sql.entries import compare_and_set
from reprieve.stores.sql.tx import SqlTx, Statements


def write_entry(
    tx: SqlTx,
    statements: Callable[[str], Statements],
    write: EntryWrite,
    now: int,
    author: Author,
    carried: Callable[[], None],
) -> EntryWritten:
    """Set or delete an entry, with its audit entry and what it carries; nothing if it has another version."""
    done = compare_and_set(tx, statements("entries"), write, now)
    if done is None:
        return EntryWritten(entry=None)
    if not done.is_repeated:
        audit = entry_audit(write, now, author)
        record_audit(tx, statements("audit"), () if audit is None else (audit,))
        carried()
    return EntryWritten(entry=done.entry)
