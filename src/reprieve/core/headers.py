"""Headers: what travels with a job besides its arguments. All of them are optional, and bounded.

They say where a job comes from and how it is found again: its trace context, tags, the jobs and the bulk operation that
it belongs to, its SLA. They never decide which function runs, nor with which arguments.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from reprieve.core import values
from reprieve.core.ids import is_id
from reprieve.core.record import Record
from reprieve.errors import ValidationError

MAX_TAGS: Final = 16
"""Tags of a job."""

MAX_TAG_CHARS: Final = 64
"""Characters of a tag."""

MAX_OWN_HEADERS: Final = 16
"""Headers of the user's own."""

MAX_NAME_CHARS: Final = 64
"""Characters of the name of a header, a bulk operation or a region."""

MAX_VALUE_CHARS: Final = 512
"""Characters of the value of a header, and of a tracestate."""

MAX_USER_CHARS: Final = 256
"""Characters of a user."""

MAX_HEADERS_BYTES: Final = 4_096
"""Bytes of all headers of a job, packed."""

MAX_CALLER_BYTES: Final = 3_072
"""Bytes of tags, user and the user's own headers, packed. So there is always room for those that Reprieve adds."""

MAX_AT: Final = (1 << 48) - 1
"""The last instant of an SLA, in milliseconds: that of an id."""

RESERVED_NAMES: Final = frozenset(
    {"traceparent", "tracestate", "tags", "parent", "linked", "operation", "credits", "sla", "region", "user"}
)
"""Names that a header of the user's own must not have, besides all that begin with `reprieve`."""

_CONTEXT = r"-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_TRACEPARENT = re.compile(rf"00{_CONTEXT}|(?!00|ff)[0-9a-f]{{2}}{_CONTEXT}(?:-[!-~]{{1,100}})?")
"""Version 00 of the W3C format, and what may follow it in later versions."""

_OWN_NAME = re.compile(rf"[a-z0-9._-]{{1,{MAX_NAME_CHARS}}}")
_encode = msgspec.msgpack.Encoder().encode


class Headers(Record):
    """The headers of a job."""

    traceparent: str = ""
    """The W3C trace context in which the job was enqueued."""
    tracestate: str = ""
    tags: tuple[str, ...] = ()
    parent: str = ""
    """The id of the job that enqueued this one while it ran."""
    linked: str = ""
    """The id of another job that this one has to do with."""
    operation: str = ""
    """The id of the bulk operation that enqueued or retried this job."""
    credits: int = 0
    """What the job costs its tenant."""
    sla_at: int | None = None
    """The instant by which the job should have ended. Unlike a deadline it ends nothing."""
    region: str = ""
    """The region in which the job was enqueued."""
    user: str = ""
    """The person or account, inside of the tenant, that the job is done for."""
    own: dict[str, str] = msgspec.field(default_factory=dict)
    """The user's own headers."""
    tells_all: bool = False
    """Whether the job's enqueue, its starts and its success are events as well, as its task asks."""


NO_HEADERS: Final = Headers()


def check_headers(headers: object) -> Headers:
    """Return headers with plain values, themselves if they have them.

    Raises a `ValidationError` that names the value and the bound that it exceeds.
    """
    if not isinstance(headers, Headers):
        message = f"headers of a job must be Headers, got {values.shown(headers)}"
        raise ValidationError(message)
    checked = replace(
        headers,
        traceparent="" if headers.traceparent == "" else require_traceparent(headers.traceparent),
        tracestate=_ascii(headers.tracestate, "tracestate", MAX_VALUE_CHARS),
        tags=require_tags(headers.tags, "tags"),
        parent="" if headers.parent == "" else require_job_id(headers.parent, "parent"),
        linked="" if headers.linked == "" else require_job_id(headers.linked, "linked"),
        operation=_ascii(headers.operation, "operation", MAX_NAME_CHARS),
        credits=values.whole(headers.credits, "credits", ValidationError),
        region=_ascii(headers.region, "region", MAX_NAME_CHARS),
        user=require_user(headers.user, "user"),
        own=require_own_headers(headers.own, "headers"),
        tells_all=values.flag(headers.tells_all, "tells_all", ValidationError),
    )
    if headers.sla_at is not None:
        checked = replace(checked, sla_at=values.whole(headers.sla_at, "sla_at", ValidationError, 0, MAX_AT))
    size = len(_encode((checked.tags, checked.user, checked.own)))
    if size > MAX_CALLER_BYTES:
        message = (
            f"tags, user and headers of a job must have at most {MAX_CALLER_BYTES:,} bytes together, got {size:,}; "
            "pass what is larger as an argument, or a reference to it"
        )
        raise ValidationError(message)
    return headers if checked == headers and _is_plain(headers) else checked


def _is_plain(headers: Headers) -> bool:
    """Whether all values of checked headers have the types that they are read back with."""
    numbers = (headers.credits,) if headers.sla_at is None else (headers.credits, headers.sla_at)
    texts = (
        *(headers.traceparent, headers.tracestate, headers.parent, headers.linked),
        *(headers.operation, headers.region, headers.user, *headers.tags, *headers.own, *headers.own.values()),
    )
    is_plain = all(type(text) is str for text in texts) and all(type(number) is int for number in numbers)
    return is_plain and type(headers.own) is dict


def is_traceparent(value: object) -> bool:
    """Whether this is a trace context in the W3C format."""
    return isinstance(value, str) and _TRACEPARENT.fullmatch(value) is not None


def require_traceparent(value: object) -> str:
    """Return a W3C trace context; raise a `ValidationError` for anything else."""
    if isinstance(value, str) and is_traceparent(value):
        return values.plain(value)
    message = (
        "traceparent must have the W3C format, as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, "
        f"got {values.shown(value)}"
    )
    raise ValidationError(message)


def trace_of(traceparent: str, tracestate: str = "") -> tuple[str, str]:
    """Return the trace context that a process found in its environment; both texts are empty if it is malformed.

    The environment is not the caller's own doing, so a mistake in it must not refuse a job.
    """
    if not is_traceparent(traceparent):
        return "", ""
    return traceparent, tracestate if _is_ascii(tracestate, MAX_VALUE_CHARS) else ""


def require_tags(value: object, what: str) -> tuple[str, ...]:
    """Return tags; raise a `ValidationError` for what is not a list of up to `MAX_TAGS` different printable texts."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        message = f'{what} must be a list of texts, as ["nightly", "eu"], got {values.shown(value)}'
        raise ValidationError(message)
    tags = tuple(_line(tag, f"each of {what}", MAX_TAG_CHARS, least=1) for tag in value)
    if len(tags) > MAX_TAGS:
        message = f"{what} must be at most {MAX_TAGS}, got {len(tags)}"
        raise ValidationError(message)
    if len(set(tags)) < len(tags):
        twice = next(tag for tag in tags if tags.count(tag) > 1)
        message = f"{what} must be different from each other, got {values.shown(twice)} twice"
        raise ValidationError(message)
    return tags


def require_own_headers(value: object, what: str) -> dict[str, str]:
    """Return the user's own headers; raise a `ValidationError` for a bad name or value, or for too many."""
    if not isinstance(value, Mapping):
        message = f'{what} must be names and texts, as {{"origin": "import"}}, got {values.shown(value)}'
        raise ValidationError(message)
    if len(value) > MAX_OWN_HEADERS:
        message = f"{what} must be at most {MAX_OWN_HEADERS}, got {len(value)}"
        raise ValidationError(message)
    return {_own_name(name, what): _line(text, f"{what}[{name!r}]", MAX_VALUE_CHARS) for name, text in value.items()}


def require_user(value: object, what: str) -> str:
    """Return a user; raise a `ValidationError` for what is not one short printable line."""
    return _line(value, what, MAX_USER_CHARS)


def require_job_id(value: object, what: str) -> str:
    """Return the id of a job; raise a `ValidationError` for anything else."""
    if isinstance(value, str) and is_id(value):
        return values.plain(value)
    message = f"{what} must be the id of a job, as 0192f0c8-7a10-7000-8000-2f6e11c40ae1, got {values.shown(value)}"
    raise ValidationError(message)


def _own_name(name: object, what: str) -> str:
    if not isinstance(name, str) or not _OWN_NAME.fullmatch(name):
        message = (
            f"names in {what} must be 1–{MAX_NAME_CHARS} of the characters a–z, 0–9, '-', '_' and '.', "
            f"got {values.shown(name)}"
        )
        raise ValidationError(message)
    if name in RESERVED_NAMES or name.startswith("reprieve"):
        message = f"{what} must not have the name {name!r}: Reprieve uses it; {_instead(name)}"
        raise ValidationError(message)
    return values.plain(name)


def _instead(name: str) -> str:
    options = ("traceparent", "tracestate", "tags", "linked", "sla", "user")
    return f"write using({name}=…)" if name in options else "choose another name"


def _line(value: object, what: str, most: int, least: int = 0) -> str:
    """Return a text of one printable line."""
    if isinstance(value, str) and least <= len(value) <= most and value.isprintable():
        return values.plain(value)
    message = f"{what} must be {least}–{most} printable characters, got {values.shown(value)}"
    if isinstance(value, str) and len(value) > most:
        message += f" of {len(value):,} characters"
    raise ValidationError(message)


def _ascii(value: object, what: str, most: int) -> str:
    if isinstance(value, str) and _is_ascii(value, most):
        return values.plain(value)
    message = f"{what} must be at most {most} printable ASCII characters, got {values.shown(value)}"
    raise ValidationError(message)


def _is_ascii(value: str, most: int) -> bool:
    return len(value) <= most and value.isascii() and value.isprintable()
