"""What no store takes: ids that it did not make, names that are none, payloads and updates that are too much."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import UNSET

from reprieve.core.fairness.settings import MAX_WEIGHT, MIN_WEIGHT
from reprieve.core.ids import is_id
from reprieve.core.job import HIGH, LOW, Job
from reprieve.errors import InvalidId, InvalidName, PayloadTooLarge, ValidationError
from reprieve.stores.protocol import MAX_NAME_CHARS, LimitUpdate


def check_jobs(jobs: Sequence[Job], largest_payload: int, is_id: Callable[[str], bool] = is_id) -> None:
    """Refuse jobs that must not be stored, before any is."""
    for job in jobs:
        if not is_id(job.id):
            message = f"{job.id[:80]!r} is not an id of this store; make ids with its new_id"
            raise InvalidId(message)
        _check_lane(job.queue, job.task, job.tenant, job.dependency, job.group)
        if job.key:
            check_name(job.key, "key")
        if not HIGH <= job.priority <= LOW:
            message = f"priority {job.priority} is none; give one from {HIGH}, the first, to {LOW}"
            raise ValidationError(message)
        if len(job.payload) > largest_payload:
            check_size(job.payload, f"payload of a {job.task} job", largest_payload)


@lru_cache(maxsize=8_192)
def _check_lane(queue: str, task: str, tenant: str, dependency: str, group: str) -> None:
    # Remembered as a whole: the jobs of a lane are checked with one look.
    check_name(queue, "queue")
    check_name(task, "task")
    check_name(tenant, "tenant", may_be_empty=True)
    check_name(dependency, "dependency", may_be_empty=True)
    check_name(group, "group", may_be_empty=True)


def check_name(name: str, what: str, *, may_be_empty: bool = False) -> None:
    """Refuse what is no name."""
    if len(name) > MAX_NAME_CHARS or not name.isprintable() or not (name or may_be_empty):
        message = f"{what} {name[:80]!r} is no name; give up to {MAX_NAME_CHARS} printable characters"
        raise InvalidName(message)


def check_size(data: bytes, what: str, largest: int) -> None:
    """Refuse what is too large."""
    if len(data) > largest:
        message = (
            f"the {what} has {len(data):,} bytes, and the store takes {largest:,}; "
            "keep the data elsewhere and pass a reference to it"
        )
        raise PayloadTooLarge(message)


def check_limit_update(update: LimitUpdate) -> None:
    """Refuse what cannot be honoured."""
    check_name(update.name, update.subject, may_be_empty=update.subject == "tenant")
    check_name(update.queue, "queue", may_be_empty=update.subject != "tenant")
    weight = update.weight
    if weight is not UNSET and (update.subject != "tenant" or not MIN_WEIGHT <= weight <= MAX_WEIGHT):
        message = f"weight {weight!r} is none; give a tenant a number from {MIN_WEIGHT} to {MAX_WEIGHT}"
        raise ValidationError(message)
    for name in ("permits", "max_running"):
        value = getattr(update, name)
        if value is not UNSET and value is not None and value < 0:
            message = f"{name} {value} of {update.subject} {update.name!r} is below 0"
            raise ValidationError(message)
