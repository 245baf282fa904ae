"""The store protocol: what every store promises, in the fewest operations that the product needs.

Every write is atomic: it is stored as a whole, with its events, or not at all. `now` is an instant in the store's time
base and comes from the caller. The core decides what happens to a job; a store only chooses jobs and writes changes.

After a lost reply the caller repeats the call. The store recognises an enqueue by the ids of its jobs, a claim by its
number and an apply by its events. A repeat changes nothing and returns what the first call would have returned.

Each module has the records and the operations of one subject; `Store` is all of them.
"""

from reprieve.stores.protocol.audit import (
    MAX_AUDIT_EXAMINED,
    MAX_AUDIT_PAGE,
    AuditFilter,
    AuditPage,
)
from reprieve.stores.protocol.causes import (
    DEAD_HOURS,
    HOUR_MS,
    LIVING_HOURS,
    MAX_CAUSES_PER_PAGE,
    MAX_COUNTED_CAUSES,
    CauseGroup,
    CauseGrouping,
    CauseOrder,
    CausePage,
    CauseRequest,
)
from reprieve.stores.protocol.entries import (
    Entry,
    EntryChanges,
    EntryDeletion,
    EntryFacts,
    EntryPage,
    EntryWrite,
    EntryWritten,
    entry_audit,
    repeated,
)
from reprieve.stores.protocol.events import (
    MAX_EVENTS_PER_PAGE,
    MAX_EXAMINED_EVENTS,
    EventPage,
    EventQuery,
    Told,
)
from reprieve.stores.protocol.failures import (
    MAX_FAILURE_BYTES,
    FailureGroup,
)
from reprieve.stores.protocol.finding import (
    MAX_FILTER_NAMES,
    MAX_NAMES,
    MAX_TALLIED,
    Filter,
    NameSubject,
    Order,
    Page,
    Range,
    Tallied,
    Tally,
)
from reprieve.stores.protocol.jobs import (
    KEY_RETENTION_SECONDS,
    MAX_EXCLUDED_TASKS,
    MAX_PAYLOAD_BYTES,
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    Expired,
    cancel_requested,
)
from reprieve.stores.protocol.limits import (
    LimitPage,
    LimitState,
    LimitUpdate,
    Pause,
    Subject,
)
from reprieve.stores.protocol.retention import (
    IDLE_SECONDS,
    NAMES_INTERVAL_SECONDS,
    Pruned,
    Retention,
    names_interval,
)
from reprieve.stores.protocol.series import (
    MAX_NAME_BUCKETS,
    MAX_SERIES_BUCKETS,
    MAX_SERIES_NAMES,
    MAX_SERIES_POINTS,
    Series,
    SeriesName,
    SeriesRequest,
)
from reprieve.stores.protocol.sessions import (
    MAX_SESSION_QUEUES,
    MAX_SESSION_TASKS,
    Heartbeat,
    Session,
)
from reprieve.stores.protocol.store import (
    Store,
)

__all__ = [
    "DEAD_HOURS",
    "HOUR_MS",
    "IDLE_SECONDS",
    "KEY_RETENTION_SECONDS",
    "LIVING_HOURS",
    "MAX_AUDIT_EXAMINED",
    "MAX_AUDIT_PAGE",
    "MAX_CAUSES_PER_PAGE",
    "MAX_COUNTED_CAUSES",
    "MAX_EVENTS_PER_PAGE",
    "MAX_EXAMINED_EVENTS",
    "MAX_EXCLUDED_TASKS",
    "MAX_FAILURE_BYTES",
    "MAX_FILTER_NAMES",
    "MAX_NAMES",
    "MAX_NAME_BUCKETS",
    "MAX_PAYLOAD_BYTES",
    "MAX_SERIES_BUCKETS",
    "MAX_SERIES_NAMES",
    "MAX_SERIES_POINTS",
    "MAX_SESSION_QUEUES",
    "MAX_SESSION_TASKS",
    "MAX_TALLIED",
    "NAMES_INTERVAL_SECONDS",
    "Annotation",
    "AuditFilter",
    "AuditPage",
    "CauseGroup",
    "CauseGrouping",
    "CauseOrder",
    "CausePage",
    "CauseRequest",
    "ChangeResult",
    "Claim",
    "Claimed",
    "Entry",
    "EntryChanges",
    "EntryDeletion",
    "EntryFacts",
    "EntryPage",
    "EntryWrite",
    "EntryWritten",
    "EventPage",
    "EventQuery",
    "Expired",
    "FailureGroup",
    "Filter",
    "Heartbeat",
    "LimitPage",
    "LimitState",
    "LimitUpdate",
    "NameSubject",
    "Order",
    "Page",
    "Pause",
    "Pruned",
    "Range",
    "Retention",
    "Series",
    "SeriesName",
    "SeriesRequest",
    "Session",
    "Store",
    "Subject",
    "Tallied",
    "Tally",
    "Told",
    "cancel_requested",
    "entry_audit",
    "names_interval",
    "repeated",
]
