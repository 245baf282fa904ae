"""Checks of how long what has ended is kept."""

from typing import Final

from msgspec.structs import replace

from reprieve.core import values
from reprieve.core.duration import MAX_DURATION_SECONDS
from reprieve.core.job import Job
from reprieve.errors import ValidationError
from reprieve.stores.check import MAX_AT
from reprieve.stores.check_audit import check_audit_retention
from reprieve.stores.check_events import check_event_retention
from reprieve.stores.check_kinds import check_record, records
from reprieve.stores.check_series import check_series_retention
from reprieve.stores.protocol import Retention

_COUNTS: Final = ("succeeded", "failures")
_TIMES: Final = ("succeeded_for", "cancelled_for", "failures_for")


def check_retention(retention: Retention) -> Retention:
    """Return a retention with plain values; raise a `ValidationError` for one that nothing can be kept by."""
    check_record(retention, Retention)
    facts: dict[str, object] = {
        "now": values.whole(retention.now, "now", ValidationError, 0, MAX_AT),
        "archived": records(retention.archived, Job, "archived"),
    }
    for name in _COUNTS:
        facts[name] = values.whole(getattr(retention, name), name, ValidationError, 0)
    for name in _TIMES:
        facts[name] = values.number(getattr(retention, name), name, ValidationError, 0.0, MAX_DURATION_SECONDS)
    check_series_retention(retention)
    return check_audit_retention(check_event_retention(replace(retention, **facts)))
