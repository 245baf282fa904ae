"""The write of an entry with what it carries: limits, new jobs and changes, in one transaction."""

import sqlite3

from reprieve.core.audit import Author
from reprieve.stores.protocol import EntryWrite, EntryWritten
from reprieve.stores.sql.entry_write import Carried, NothingWritten, write_entry
from reprieve.stores.sqlite import enqueue, settle, update_limits
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.notices import tell
from reprieve.stores.sqlite.statements import statements
from reprieve.stores.sqlite.tx import SqliteTx


def write(tx: sqlite3.Connection, lanes: LaneCache, wanted: EntryWrite, now: int, author: Author) -> EntryWritten:
    """Write an entry and all that it carries, or nothing."""

    def carried() -> Carried:
        update_limits.update_limits(tx, wanted.updates, now, author)
        tell(tx, wanted.notices)
        ids = enqueue.enqueue(tx, lanes, wanted.jobs, now) if wanted.jobs else []
        return ids, settle.apply(tx, lanes, wanted.changes, now)

    tx.execute("savepoint entry_write")
    try:
        written = write_entry(SqliteTx(tx), statements, wanted, now, author, carried)
    except NothingWritten as nothing:
        tx.execute("rollback to entry_write")
        lanes.clear()
        written = nothing.written or EntryWritten(entry=None)
    tx.execute("release entry_write")
    return written
