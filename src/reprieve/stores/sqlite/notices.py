"""Notices: written among the events of jobs."""

import sqlite3
from collections.abc import Iterable

from reprieve.core.notice import Notice
from reprieve.stores.event_record import pack_notice
from reprieve.stores.sqlite.statements import statements


def tell(tx: sqlite3.Connection, notices: Iterable[Notice]) -> None:
    """Add notices to the stream."""
    tx.executemany(statements("events")["tell"], [(notice.at, pack_notice(notice)) for notice in notices])
