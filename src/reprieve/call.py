"""A call of a task that is to be enqueued: its encoded arguments, and the options of its job."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Generic, TypedDict, TypeVar

from msgspec import structs

from reprieve.context import Running
from reprieve.core import values
from reprieve.core.duration import Duration, milliseconds, seconds
from reprieve.core.headers import (
    NO_HEADERS,
    Headers,
    check_headers,
    require_job_id,
    require_own_headers,
    require_tags,
    require_traceparent,
    require_user,
)
from reprieve.core.job import Job
from reprieve.core.policy import Override
from reprieve.declaration import Declaration, Dependency, require_dependency, require_priority
from reprieve.errors import ValidationError

R_co = TypeVar("R_co", covariant=True)


class Options(TypedDict, total=False):
    """The options of one job. They never share a namespace with the task's own arguments."""

    tenant: str
    """The customer or user that the job belongs to."""
    queue: str
    """Another queue than the task's."""
    delay: Duration
    """How long to wait before the first attempt."""
    at: datetime
    """When the first attempt may start, instead of a delay; with a time zone."""
    priority: int
    """1 is first, 9 last."""
    key: str
    """At most one job of this task and tenant has it: enqueued again, the handle is that of the job that exists."""
    key_ttl: Duration
    """How long the key is kept, counted from the enqueue; at least as long as its job waits or runs."""
    deadline: Duration
    """How long after its enqueue the job may still start."""
    dependency: Dependency
    """Another dependency than the task's."""
    group: str
    """A limit that this job shares with others of its group."""
    max_attempts: int
    retry_delay: Duration
    max_retry_delay: Duration
    """Retry settings for this job alone."""
    tags: Sequence[str]
    """Other tags than the task's."""
    headers: Mapping[str, str]
    """Names and texts of your own, which travel with the job."""
    user: str
    """The person or account, inside of the tenant, that the job is done for."""
    sla: Duration
    """How long after its enqueue the job should have ended; nothing ends it then."""
    linked: str
    """The id of another job that this one has to do with."""
    traceparent: str
    """The W3C trace context; without it, that of the job that enqueues this one."""
    tracestate: str
    connection: object
    """A connection with an open transaction: the job exists if that transaction commits, and not otherwise.
    None: store the job at once."""


class Terms:
    """What all jobs that are enqueued with the same task and options have in common, computed once."""

    __slots__ = ("at", "connection", "deadline", "declaration", "delay", "headers", "model", "options", "sla")

    def __init__(self, declaration: Declaration, options: Options) -> None:
        """Check the options, and make the job that the others are copies of."""
        self.declaration = declaration
        if options:
            options = _checked(options)
            if "dependency" in options:
                self.declaration = replace(declaration, dependency=options["dependency"])
        self.options = options
        self.connection = options.get("connection")
        self.delay = milliseconds(seconds(options["delay"], "delay")) if "delay" in options else 0
        """Milliseconds to wait before the first attempt."""
        self.at = _moment(options["at"]) if "at" in options else None
        """The time before which it must not start, in milliseconds since 1970."""
        self.deadline = milliseconds(seconds(options["deadline"], "deadline")) if "deadline" in options else None
        """Milliseconds after its enqueue in which it may start; None: as the policy says."""
        sla = seconds(options["sla"], "sla") if "sla" in options else declaration.sla
        self.sla = None if sla is None else milliseconds(sla)
        """Milliseconds after its enqueue in which it should have ended."""
        self.headers = _headers(declaration, options)
        self.model = Job(
            id="",
            task=declaration.name,
            queue=options.get("queue", declaration.queue),
            tenant=options.get("tenant", ""),
            group=options.get("group", ""),
            key=options.get("key", ""),
            key_ttl=seconds(options["key_ttl"], "key_ttl") if "key_ttl" in options else None,
            priority=options.get("priority", declaration.priority),
            override=_override(options),
            timeout=declaration.timeout,
            created_at=0,
            due_at=0,
        )

    def headers_at(self, now: int, running: Running | None) -> Headers | None:
        """Return the headers of a job that is enqueued at `now`, by the job that is running if there is one.

        Of the running job only its id and its trace context are inherited: tags, user and headers of its own are not.
        """
        headers = self.headers
        if running is not None:
            above = running.job.headers or NO_HEADERS
            headers = structs.replace(headers or NO_HEADERS, parent=running.id)
            if above.traceparent and not headers.traceparent:
                headers = structs.replace(headers, traceparent=above.traceparent, tracestate=above.tracestate)
        if self.sla is not None:
            headers = structs.replace(headers or NO_HEADERS, sla_at=now + self.sla)
        return headers


class Call(Generic[R_co]):
    """One call of a task that has not been enqueued; its job returns an `R_co`."""

    __slots__ = ("dependency", "payload", "terms")

    def __init__(self, terms: Terms, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Encode the arguments, and compute the dependency of the call."""
        declaration = terms.declaration
        self.terms = terms
        self.payload = declaration.codec.encode(args, kwargs)
        self.dependency = declaration.dependency_of(args, kwargs)


def _checked(options: Options) -> Options:
    """Return the options with plain names.

    Raises a `ValidationError` for an option whose value is of the wrong type, or that contradicts another.
    """
    if "at" in options and "delay" in options:
        message = "a job has either at or delay, not both"
        raise ValidationError(message)
    if options.get("queue") == "":
        message = "option queue of a job must not be empty; leave it out for the task's own queue"
        raise ValidationError(message)
    checked = options.copy()
    for option in _TEXTS & options.keys():
        value = options[option]  # type: ignore[literal-required]  # names of options
        if not isinstance(value, str):
            instead = "; leave it out for a job without one" if value is None else ""
            message = f"option {option} of a job must be text, got {values.shown(value)}{instead}"
            raise ValidationError(message)
        checked[option] = values.name(value, f"option {option} of a job", may_be_empty=True)  # type: ignore[literal-required]  # as above
    if "priority" in options:
        checked["priority"] = require_priority(options["priority"], "of a job", ValidationError)
    if "dependency" in options:
        checked["dependency"] = require_dependency(options["dependency"], "of a job")
    return checked


_TEXTS = frozenset({"tenant", "queue", "key", "group"})


def _headers(declaration: Declaration, options: Options) -> Headers | None:
    """Return the headers that all jobs with these options have; None when there are none."""
    headers = NO_HEADERS
    if declaration.tags or not options.keys().isdisjoint(_OF_HEADERS):
        headers = Headers(
            tags=require_tags(options.get("tags", declaration.tags), "option tags of a job"),
            own=require_own_headers(options.get("headers", {}), "option headers of a job"),
            user=require_user(options.get("user", ""), "option user of a job"),
            linked=require_job_id(options["linked"], "option linked of a job") if "linked" in options else "",
            traceparent=require_traceparent(options["traceparent"]) if "traceparent" in options else "",
            tracestate=options.get("tracestate", ""),
        )
    if headers.tracestate and not headers.traceparent:
        message = "option tracestate of a job needs the option traceparent, which it adds to"
        raise ValidationError(message)
    if declaration.events:
        headers = structs.replace(headers, tells_all=True)
    return None if headers == NO_HEADERS else check_headers(headers)


_OF_HEADERS = frozenset({"tags", "headers", "user", "linked", "traceparent", "tracestate"})


def _override(options: Options) -> Override | None:
    """Return the retry settings of this job; None when it has none."""
    if options.keys().isdisjoint(_RETRY_SETTINGS):
        return None
    return Override(**{option: options[option] for option in _RETRY_SETTINGS & options.keys()})  # type: ignore[literal-required]  # names of options


_RETRY_SETTINGS = frozenset({"max_attempts", "retry_delay", "max_retry_delay"})


def _moment(at: object) -> int:
    if not isinstance(at, datetime) or at.tzinfo is None:
        message = f"option at of a job must be a datetime with a time zone, got {values.shown(at)}"
        raise ValidationError(message)
    return milliseconds(at.timestamp())
