"""The audit log: what people did, each entry stored in the same write as what it records."""

from typing import Final, Protocol

from reprieve.core.audit import Action, AuditEntry, SubjectKind
from reprieve.core.record import Record

MAX_AUDIT_PAGE: Final = 200
"""Entries of one page."""

MAX_AUDIT_EXAMINED: Final = 1_000
"""Entries of a partition that one read looks at. A page may be short, or empty, and still have a cursor."""


class AuditFilter(Record):
    """Which entries of the audit log are wanted: those that match every field that is given."""

    actor: str = ""
    action: Action | None = None
    kind: SubjectKind | None = None
    name: str | None = None
    """The name of the subject, which needs its kind."""
    tenant: str | None = None
    """Entries of one tenant; an empty name selects those of no tenant."""
    scope: str | None = None
    """The one tenant that the reader may see; None for a reader who may see all. Entries of other tenants, and of none,
    do not exist for it: a filter that names another tenant raises a `ValidationError`, whether or not there is one, and
    only entries of its own are looked at, so that no cursor tells of others."""
    since_at: int | None = None
    until_at: int | None = None
    """Before this instant."""
    is_newest_first: bool = True


class AuditPage(Record):
    """Some entries of the audit log; an empty cursor means that there are no more."""

    entries: tuple[AuditEntry, ...]
    cursor: str = ""
    """Where to go on, for the same filter."""


class AuditStore(Protocol):
    """Reads the audit log. Nothing writes to it but the actions that it records, and only `prune` deletes entries."""

    async def audit_log(self, wanted: AuditFilter, cursor: str = "", limit: int = 100) -> AuditPage:
        """Return a page of the audit log by time, at most `MAX_AUDIT_PAGE` entries.

        Indexes find the entries of a subject, an actor, a tenant or a time; other fields are compared with at most
        `MAX_AUDIT_EXAMINED` entries a call. Entries of the same instant are in the order of their positions.
        Raises `InvalidCursor` for the cursor of another filter.
        """
        ...
