"""What is indexed: the filters, statuses and orders for which a page reads about as many jobs as it returns.

Every other search is bounded: a page looks at 250 jobs, or as many as it may hold, and says how far it got.
`docs/extend/stores.md` shows the table, and the conformance checks try every cell of it on every store.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from reprieve.core.status import Status
from reprieve.stores.protocol import Order

Field: TypeAlias = Literal["queue", "tenant", "task", "dependency", "session", "death", "code", "fingerprint"]

Fields: TypeAlias = tuple[Field, ...]
"""What a filter names; nothing: the jobs of the whole store."""


class IndexedStatus(NamedTuple):
    """What is indexed of the jobs with one status."""

    status: Status
    sorted_by: str
    """The time by which they are sorted."""
    orders: tuple[Order, ...]
    filters: tuple[Fields, ...]


_BOTH: Final[tuple[Order, ...]] = ("oldest", "newest")
_WAITING: Final[tuple[Order, ...]] = (*_BOTH, "due")
_RUNNING: Final[tuple[Order, ...]] = (*_BOTH, "longest")
_STORE_AND_QUEUE: Final[tuple[Fields, ...]] = ((), ("queue",))
_LANES: Final[tuple[Fields, ...]] = (*_STORE_AND_QUEUE, ("tenant",), ("task",), ("dependency",), ("tenant", "task"))
_TRIED: Final[tuple[Fields, ...]] = (*_STORE_AND_QUEUE, ("tenant",), ("task",), ("dependency",))
_DEAD: Final[tuple[Fields, ...]] = (
    *_STORE_AND_QUEUE,
    ("tenant",),
    ("task",),
    ("dependency",),
    ("death",),
    ("code",),
    ("fingerprint",),
    ("tenant", "fingerprint"),
)

FINDING_TABLE: Final[tuple[IndexedStatus, ...]] = (
    IndexedStatus("ready", "when the job became ready, or its SLA", _WAITING, _LANES),
    IndexedStatus("scheduled", "when the job is due", _WAITING, _STORE_AND_QUEUE),
    IndexedStatus("retrying", "when the job is due", _WAITING, (*_TRIED, ("code",), ("fingerprint",))),
    IndexedStatus("parked", "when the job is due, or became ready", _WAITING, _TRIED),
    IndexedStatus("running", "when the attempt began", _RUNNING, ((), ("session",))),
    IndexedStatus("stuck", "when the attempt began", ("oldest", "longest"), ((), ("session",))),
    IndexedStatus("succeeded", "when the success was stored", _BOTH, _STORE_AND_QUEUE),
    IndexedStatus("dead", "when the job ended", _BOTH, _DEAD),
    IndexedStatus("cancelled", "when the job ended", _BOTH, (*_STORE_AND_QUEUE, ("tenant",))),
)


def table_lines() -> list[str]:
    """Return the table as Markdown."""
    lines = ["| status | sorted by | orders | indexed for |", "|---|---|---|---|"]
    for row in FINDING_TABLE:
        filters = ", ".join(" with ".join(fields) or "all jobs" for fields in row.filters)
        lines.append(f"| {row.status} | {row.sorted_by} | {', '.join(row.orders)} | {filters} |")
    return lines
