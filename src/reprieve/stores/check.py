"""Checks of what callers hand to a store, before the store sees it. `checked.py` applies them."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import UNSET

from reprieve.core import values
from reprieve.core.fairness.settings import MAX_WEIGHT, MIN_WEIGHT
from reprieve.core.ids import is_id
from reprieve.core.job import HIGH, LOW, Job
from reprieve.errors import InvalidId, PayloadTooLarge, ValidationError
from reprieve.stores.protocol import LimitUpdate


def check_jobs(jobs: Sequence[Job], largest_payload: int, is_id: Callable[[str], bool] = is_id) -> None:
    """Raise a `ValidationError` if any of the jobs must not be stored."""
    for job in jobs:
        if not is_id(job.id):
            message = f"{job.id[:80]!r} is not an id of this store; make ids with its new_id"
            raise InvalidId(message)
        _check_lane(job.queue, job.task, job.tenant, job.dependency, job.group)
        if job.key:
            values.name(job.key, "key")
        if not HIGH <= job.priority <= LOW:
            message = f"priority must be {HIGH}–{LOW}, got {job.priority}"
            raise ValidationError(message)
        if len(job.payload) > largest_payload:
            check_size(job.payload, f"payload of a {job.task} job", largest_payload)


@lru_cache(maxsize=8_192)
def _check_lane(queue: str, task: str, tenant: str, dependency: str, group: str) -> None:
    # Cached as a whole: most jobs are of a few lanes.
    values.name(queue, "queue")
    values.name(task, "task")
    values.name(tenant, "tenant", may_be_empty=True)
    values.name(dependency, "dependency", may_be_empty=True)
    values.name(group, "group", may_be_empty=True)


def check_size(data: bytes, what: str, largest: int) -> None:
    """Raise `PayloadTooLarge` for more than `largest` bytes."""
    if len(data) > largest:
        message = (
            f"the {what} has {len(data):,} bytes, and the store takes {largest:,}; "
            "keep the data elsewhere and pass a reference to it"
        )
        raise PayloadTooLarge(message)


def check_page_limit(limit: int) -> None:
    """Raise a `ValidationError` unless a page can hold at least one item."""
    if limit < 1:
        message = f"limit must be 1 or more, got {limit}"
        raise ValidationError(message)


def check_limit_update(update: LimitUpdate) -> None:
    """Raise a `ValidationError` for limits that cannot be kept."""
    values.name(update.name, update.subject, may_be_empty=update.subject == "tenant")
    values.name(update.queue, "queue", may_be_empty=update.subject != "tenant")
    weight = update.weight
    if weight is not UNSET and update.subject != "tenant":
        message = f"only a tenant has a weight, not {update.subject} {update.name!r}"
        raise ValidationError(message)
    if weight is not UNSET and not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        message = f"weight must be {MIN_WEIGHT}–{MAX_WEIGHT}, got {weight!r}"
        raise ValidationError(message)
    for name in ("permits", "max_running"):
        value = getattr(update, name)
        if value is not UNSET and value is not None and value < 0:
            message = f"{name} of {update.subject} {update.name!r} must be 0 or more, got {value}"
            raise ValidationError(message)
