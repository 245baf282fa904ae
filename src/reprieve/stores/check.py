"""Checks of what callers hand to a store, before the store sees it. `checked.py` applies them.

A store gets plain values only: a `(str, Enum)` member counts as its value, and what cannot be stored and read back is
refused.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from reprieve.core import values
from reprieve.core.change import Change, is_audited
from reprieve.core.duration import MAX_DURATION_SECONDS
from reprieve.core.fairness.settings import MAX_WEIGHT, MIN_WEIGHT
from reprieve.core.headers import check_headers
from reprieve.core.ids import is_id
from reprieve.core.job import HIGH, LOW, Job
from reprieve.core.move import Succeed
from reprieve.core.policy import Override
from reprieve.core.rate import Rate
from reprieve.core.text import clean
from reprieve.errors import InvalidId, PayloadTooLarge, ValidationError
from reprieve.stores.failure_names import with_names
from reprieve.stores.limit_fields import PAUSE_BITS
from reprieve.stores.protocol import (
    MAX_EXCLUDED_TASKS,
    MAX_FAILURE_BYTES,
    MAX_SESSION_QUEUES,
    MAX_SESSION_TASKS,
    FailureGroup,
    Heartbeat,
    LimitUpdate,
    Subject,
)

_AT_BITS: Final = 48
MAX_AT: Final = (1 << _AT_BITS) - 1
"""The last instant that a job may have, in milliseconds: that of an id."""

_NAMES: Final = ("queue", "task", "tenant", "dependency", "group", "key")
_MUST_BE_NAMED: Final = ("queue", "task")
_encode = msgspec.msgpack.Encoder().encode
_decode_change = msgspec.msgpack.Decoder(Change).decode


def check_jobs(jobs: Sequence[Job], largest_payload: int, is_id: Callable[[str], bool] = is_id) -> Sequence[Job]:
    """Return the jobs with plain values; raise a `ValidationError` if any of them must not be stored."""
    jobs = _plain_jobs(jobs)
    for job in jobs:
        if not is_id(job.id):
            message = f"{job.id[:80]!r} is not an id of this store; make ids with its new_id"
            raise InvalidId(message)
        if job.key:
            values.name(job.key, "key")
        if len(job.payload) > largest_payload:
            check_size(job.payload, f"payload of a {job.task} job", largest_payload)
    return jobs


def _plain_jobs(jobs: Sequence[Job]) -> Sequence[Job]:
    """Return the jobs with plain values; the same list if all of them have these, as is normal."""
    headers = None
    for job in jobs:
        if job.headers is not headers:
            # Jobs of one task and one call mostly share their headers.
            headers = None if job.headers is None else check_headers(job.headers)
        if (job.headers is not headers or not _is_plain(job)) and _plain(job) is not job:
            return [_plain(job) for job in jobs]
    return jobs


def _is_plain(job: Job) -> bool:
    # Reads of `__class__`, since calls of type() would take half of the time.
    try:
        return (
            _are_plain(
                job.queue, job.task, job.tenant, job.dependency, job.group, job.priority, job.max_attempts, job.timeout
            )
            and job.key.__class__ is str
            and job.payload.__class__ is bytes
            and job.created_at.__class__ is int
            and job.due_at.__class__ is int
            and (job.created_at | job.due_at) >> _AT_BITS == 0
            and (job.deadline_at is None or (job.deadline_at.__class__ is int and job.deadline_at >> _AT_BITS == 0))
            and (job.override is None or job.override.__class__ is Override)
            and (job.key_ttl is None or (job.key_ttl.__class__ is float and 0 <= job.key_ttl <= MAX_DURATION_SECONDS))
        )
    except TypeError:  # a name or number that cannot be hashed
        return False


@lru_cache(maxsize=8_192, typed=True)
def _are_plain(*shared: Any) -> bool:  # noqa: ANN401 - by position and of any type: a cache is fastest so
    """Whether what most jobs share with many others is plain: the names of a lane, and numbers that their tasks set."""
    *names, priority, max_attempts, timeout = shared
    return (
        all(type(name) is str and len(name) <= values.MAX_NAME_CHARS and name.isprintable() for name in names)
        and bool(names[0] and names[1])
        and type(priority) is int
        and HIGH <= priority <= LOW
        and (max_attempts is None or (type(max_attempts) is int and 1 <= max_attempts <= values.MAX_WHOLE))
        and (timeout is None or (type(timeout) is float and 0 <= timeout <= MAX_DURATION_SECONDS))
    )


def _plain(job: Job) -> Job:
    """Return a job with plain values, itself if it has them; raise a `ValidationError` for a value that no job has."""
    facts: dict[str, object] = {
        name: values.name(getattr(job, name), name, may_be_empty=name not in _MUST_BE_NAMED) for name in _NAMES
    }
    facts["id"] = values.text(job.id, "id", InvalidId)
    facts["priority"] = values.whole(job.priority, "priority", ValidationError, HIGH, LOW)
    for name in ("created_at", "due_at", "deadline_at"):
        if name != "deadline_at" or job.deadline_at is not None:
            facts[name] = values.whole(getattr(job, name), name, ValidationError, 0, MAX_AT)
    if job.max_attempts is not None:
        facts["max_attempts"] = values.whole(job.max_attempts, "max_attempts", ValidationError, 1)
    for name in ("timeout", "key_ttl"):
        if (value := getattr(job, name)) is not None:
            facts[name] = _check_duration(value, name)
    for name, kind, what in (("payload", bytes, "bytes"), ("override", Override | None, "an Override")):
        if not isinstance(value := getattr(job, name), kind):
            message = f"{name} of a job must be {what}, got {values.shown(value)}"
            raise ValidationError(message)
    facts["headers"] = None if job.headers is None else check_headers(job.headers)
    is_plain = all(type(getattr(job, name)) is type(value) for name, value in facts.items())
    return job if is_plain and facts["headers"] is job.headers else replace(job, **facts)


def _check_duration(value: object, name: str) -> float:
    return values.number(value, name, ValidationError, 0.0, MAX_DURATION_SECONDS)


def is_plain_success(change: Change) -> bool:
    """Whether a change is a success without a result, as most are: it holds only what the store itself returned."""
    return change.result is None and type(change.event.move) is Succeed


def check_change(change: Change, largest_payload: int) -> Change:
    """Return a change as it will be read back; raise a `ValidationError` if it cannot be stored."""
    if change.result is not None:
        check_size(change.result, "result", largest_payload)
        _check_duration(change.result_ttl, "result_ttl")
    try:
        stored = _decode_change(_encode(change))
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError) as error:
        message = f"a change of job {change.job.id} cannot be stored: {error}"
        raise ValidationError(message) from error
    job, at, cause = stored.job, stored.event.at, stored.job.cause
    if job.state == "dead" and (job.death is None or cause is None or not cause.reason.strip()):
        message = f"job {job.id} must not be dead without a reason; give its cause one"
        raise ValidationError(message)
    is_in_time = 0 <= job.due_at <= MAX_AT and 0 <= (job.finished_at or 0) <= MAX_AT and 0 <= at <= MAX_AT
    if not is_in_time or not 0 <= job.version <= values.MAX_WHOLE:
        message = f"job {job.id} has a time or a version that no store can hold: {job.due_at}, {at}, {job.version}"
        raise ValidationError(message)
    if not is_audited(stored):
        message = (
            f"a change of job {job.id} by a person needs its audit entry, with a name and a reason; no other has one"
        )
        raise ValidationError(message)
    if cause is not None and ("\0" in cause.reason or "\0" in cause.code or "\0" in cause.fingerprint):
        message = f"the cause of job {job.id} must not contain NUL, got {values.shown(cause)}"
        raise ValidationError(message)
    return with_names(stored)


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
    values.whole(limit, "limit", ValidationError, 1)


def check_queues(queues: Sequence[str]) -> Sequence[str]:
    """Return the names of queues as plain texts."""
    return _check_texts(queues, "queue")


def check_exclude(tasks: Sequence[str]) -> Sequence[str]:
    """Return the names of excluded tasks as plain texts; raise a `ValidationError` if there are too many."""
    if len(tasks) > MAX_EXCLUDED_TASKS:
        message = (
            f"a claim can exclude {MAX_EXCLUDED_TASKS:,} tasks at most, got {len(tasks):,}; leave out the tasks that "
            "have no jobs"
        )
        raise ValidationError(message)
    return _check_texts(tasks, "excluded task")


def _check_texts(texts: Sequence[str], what: str) -> Sequence[str]:
    if all(type(text) is str for text in texts):
        return texts
    return tuple(values.text(text, what, ValidationError) for text in texts)


def check_heartbeat(heartbeat: Heartbeat) -> Heartbeat:
    """Return a heartbeat with plain values, each name once; raise a `ValidationError` for what no session can have."""
    facts: dict[str, object] = {
        name: values.whole(getattr(heartbeat, name), f"{name} of a session", ValidationError)
        for name in ("slots", "prefetch", "running", "pid")
    }
    for name in ("host", "version"):
        facts[name] = values.name(getattr(heartbeat, name), f"{name} of a session", may_be_empty=True)
    for name, what, most in (("queues", "queue", MAX_SESSION_QUEUES), ("tasks", "task", MAX_SESSION_TASKS)):
        names: Sequence[object] = getattr(heartbeat, name)
        if len(names) > most:
            message = (
                f"session {heartbeat.session!r} has {len(names):,} {name}, and a session may have {most:,}; "
                "start several workers, each for some of them"
            )
            raise ValidationError(message)
        facts[name] = tuple(dict.fromkeys(values.name(one, f"{what} of a session") for one in names))
    return replace(heartbeat, **facts)


def check_failure_group(group: FailureGroup) -> FailureGroup:
    """Return a group of failures with plain values; raise a `ValidationError` for one that cannot be kept."""
    traceback = values.text(group.traceback, "traceback of a group of failures", ValidationError)
    if len(traceback.encode(errors="replace")) > MAX_FAILURE_BYTES:
        message = f"the traceback of a group of failures must have at most {MAX_FAILURE_BYTES:,} bytes"
        raise ValidationError(message)
    return FailureGroup(
        fingerprint=values.name(group.fingerprint, "fingerprint"),
        template=clean(values.text(group.template, "template", ValidationError)),
        type=values.name(group.type, "type of a group of failures", may_be_empty=True),
        traceback=traceback.encode(errors="replace").decode(),
        first_seen_at=values.whole(group.first_seen_at, "first_seen_at", ValidationError, 0, MAX_AT),
        last_seen_at=values.whole(group.last_seen_at, "last_seen_at", ValidationError, 0, MAX_AT),
    )


def check_subject(subject: str) -> None:
    """Raise a `ValidationError` for what has no limits."""
    if subject not in get_args(Subject):
        names = ", ".join(get_args(Subject))
        message = f"the subject of limits must be one of {names}, got {values.shown(subject)}"
        raise ValidationError(message)


def _check_scope(update: LimitUpdate) -> None:
    """Raise a `ValidationError` for an unknown subject, or one that has no queue or dependency and is given one."""
    check_subject(update.subject)
    for scope, subject in (("queue", "tenant"), ("dependency", "tenant_dependency")):
        if getattr(update, scope) and update.subject != subject:
            message = f"only a {subject} has a {scope}, not {update.subject} {update.name!r}"
            raise ValidationError(message)


def check_limit_update(update: LimitUpdate) -> LimitUpdate:
    """Return limits with plain values; raise a `ValidationError` for limits that cannot be kept."""
    _check_scope(update)
    is_tenant, is_pair = update.subject == "tenant", update.subject == "tenant_dependency"
    is_default = update.name is None
    facts: dict[str, object] = {
        "queue": values.name(update.queue, "queue", may_be_empty=is_default or not is_tenant),
        "dependency": values.name(update.dependency, "dependency", may_be_empty=is_default or not is_pair),
    }
    if not is_default:
        facts["name"] = values.name(update.name, update.subject, may_be_empty=is_tenant or is_pair)
    whose = f"every {update.subject}" if is_default else f"{update.subject} {update.name!r}"
    if update.weight is not UNSET:
        if is_default or not is_tenant:
            message = f"only a tenant has a weight, not {whose}"
            raise ValidationError(message)
        facts["weight"] = values.number(update.weight, f"weight of {whose}", ValidationError, MIN_WEIGHT, MAX_WEIGHT)
    for name in ("permits", "max_running"):
        value = getattr(update, name)
        if value is not UNSET and value is not None and value != "default":
            facts[name] = values.whole(value, f"{name} of {whose}", ValidationError)
    rate: object = update.rate
    if rate is not UNSET and rate != "default" and not isinstance(rate, Rate | None):
        message = f"rate of {whose} must be a Rate, got {values.shown(rate)}"
        raise ValidationError(message)
    _check_pauses(update, whose)
    return replace(update, **facts)


def _check_pauses(update: LimitUpdate, whose: str) -> None:
    pauses: object = update.pauses
    if pauses is UNSET or (update.subject == "queue" and pauses == "default"):
        return
    if update.subject != "queue":
        message = f"only a queue pauses retries and schedules, not {whose}"
        raise ValidationError(message)
    if not isinstance(pauses, tuple) or not set(pauses) <= PAUSE_BITS.keys():
        message = f"pauses of {whose} must be a tuple of {' and '.join(PAUSE_BITS)}, got {values.shown(pauses)}"
        raise ValidationError(message)
