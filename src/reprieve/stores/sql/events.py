"""Reading events in the tables of a SQL database."""

from reprieve.stores.event_page import StoredEvent, StreamEnds, page_of, require_past, rows_to_read
from reprieve.stores.event_record import read_told
from reprieve.stores.protocol import EventPage, EventQuery, Told
from reprieve.stores.sql.tx import SqlTx, Statements

MAX_POSITION = (1 << 63) - 1
"""A position after that of every event."""


def read_events(tx: SqlTx, sql: Statements, query: EventQuery, job: int | str | None) -> EventPage:
    """Return a page of events, of one job or of all."""
    name = ("newest" if query.newest_first else "oldest") + ("" if job is None else "_of_job")
    wanted = {
        "job": job,
        "after": query.after,
        "before": MAX_POSITION if query.before is None else query.before,
        "limit": rows_to_read(query),
    }
    rows = [StoredEvent(*row) for row in tx.all(sql[name], wanted)]
    ends = StreamEnds(*(tx.one(sql["ends"]) or (0, 0)))
    require_past(query, ends.newest)
    return page_of(query, rows, ends, _read)


def _read(row: StoredEvent) -> Told | None:
    return read_told(row.data)
