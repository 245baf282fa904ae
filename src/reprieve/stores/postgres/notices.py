"""Notices: written among the events of jobs, under the claim lock, so that they are committed in their order."""

from collections.abc import Sequence

from reprieve.core.notice import Notice
from reprieve.stores.event_record import pack_notice
from reprieve.stores.postgres.array_statements import run
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.statements import statements


def tell(tx: Tx, notices: Sequence[Notice]) -> None:
    """Add notices to the stream."""
    if notices:
        run(tx, statements("events")["tell"], [(notice.at, pack_notice(notice)) for notice in notices])
