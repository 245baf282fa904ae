"""The facts of a failure, read from an exception or a text, before they are classified.

Exceptions are read by their attributes, never by importing the library that raised them. What an external system says
is cleaned and bounded here, once, so that no other module has to handle a negative Retry-After.
"""

import builtins
import math
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Literal, NamedTuple, TypeAlias

from reprieve.core.duration import clamp
from reprieve.core.fingerprint import MAX_FRAMES, Frame
from reprieve.core.network import network_error_behind, network_error_in
from reprieve.core.record import Record
from reprieve.core.text import MAX_CODE_CHARS, clean, clean_code

Protocol: TypeAlias = Literal["", "smtp", "http", "aws"]

MAX_PUSH_BACK_SECONDS = 5 * 86_400.0
"""The longest wait that an external system can ask for: as long as a job may stay parked."""


class Failure(Record):
    """The facts of one failed attempt, not classified."""

    message: str
    types: tuple[str, ...] = ()
    code: str = ""
    enhanced: str = ""
    protocol: Protocol = ""
    retry_after: float | None = None
    dependency: str = ""
    frames: tuple[Frame, ...] = ()
    cause: "Failure | None" = None
    traceback: str = ""
    """The traceback, shortened; the worker makes it, since source lines are read from files."""
    full_traceback: str = ""
    """The traceback with all its frames; empty if the worker does not need it, to describe a group of failures."""
    network: str = ""
    """The network error behind it, by its symbolic name; see `network`."""
    bare_code: str = ""
    """The attribute `code` of an exception that names no protocol: which table reads it depends on the policy."""

    @property
    def type(self) -> str:
        """The exception's class, without its module; empty when a text was read."""
        return self.types[0].rpartition(".")[2] if self.types else ""


Error: TypeAlias = BaseException | str | int | Failure
"""What `read` accepts: an exception, a message or code as text, a bare code, or a failure."""


class _Facts(NamedTuple):
    message: str = ""
    code: str = ""
    enhanced: str = ""
    protocol: Protocol = ""
    retry_after: float | None = None
    network: str = ""
    bare_code: str = ""


def read(error: Error, *, dependency: str = "", now: int | None = None) -> Failure:
    """Return the facts of a failure; `now`, in milliseconds, is needed for a Retry-After header that holds a date."""
    match error:
        case Failure():
            return error
        case BaseException():
            return _read_exception(error, dependency, now)
        case _:
            text = clean(str(error))
            facts = _read_text(text)
            types = _types_in(text)
            code = facts.code or (types[0] if types else "")
            facts = facts._replace(code=code, network=network_error_in(text))
            return _failure(facts, text or "unknown error", types, dependency)


def _types_in(text: str) -> tuple[str, ...]:
    """Return the classes that a single word names: those of a built-in exception, or the word itself."""
    if not text.isidentifier() or len(text) > MAX_CODE_CHARS:
        return ()
    known = getattr(builtins, text, None)
    if isinstance(known, type) and issubclass(known, BaseException):
        return _class_names(known)  # type: ignore[arg-type]  # as above
    return (text,)


def class_name(kind: type) -> str:
    """Return the qualified name of a class; a builtin has no module."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_AWS = re.compile(r"An error occurred \((\w{1,80})\) when calling")
_HTTP = re.compile(
    r"\bHTTP(?:/\d(?:\.\d)?)?(?: (?:status|error|code|response))*[ :]{1,3}([1-5]\d\d)\b"
    r"|^([1-5]\d\d)(?: (?:Client|Server) Error:|, message=)",
    re.IGNORECASE,
)
_SMTP = re.compile(
    r"^(?:SMTP(?: error)?[ :]{1,3}|\()?([2-5]\d\d)(?![\d.])"
    r"(?:(?:[ -]{1,2}|, b?['\"])\(?\[?#?([45]\.\d{1,3}\.\d{1,3})(?!\.?\d))?",
    re.IGNORECASE,
)
_PLAIN_REPLY = re.compile(
    r"([45]\d\d)[ -]{1,2}(?:\(?\[?#?([45]\.\d{1,3}\.\d{1,3})(?!\.?\d)|"
    r"(?:requested (?:mail )?action|mailbox|no such (?:user|recipient)|(?:unknown )?user (?:unknown|not local)"
    r"|unknown user|recipient|relay(?:ing)? (?:access )?denied|service not available|transaction failed|syntax error"
    r"|command not implemented|bad sequence of commands|insufficient (?:system )?storage|gr[ae]y-?listed"
    r"|message rejected|sender)\b)",
    re.IGNORECASE,
)
"""An SMTP reply in the message of an exception that says nothing else: a number alone may count anything."""
_SMTP_CLASS = re.compile(r"smtp", re.IGNORECASE)
_AWS_CLASS = re.compile(r"SES(?![a-z])|Ses(?![a-z])|Aws(?![a-z])|AWS|Boto")
_ENHANCED = re.compile(r"^\[?([45]\.\d{1,3}\.\d{1,3})(?!\.?\d)|\(#([45]\.\d{1,3}\.\d{1,3})\)")
_PUSH_BACK = re.compile(
    r"\b(?:try again|retry|resend|come back|wait)\b[^\d.]{0,30}?"
    r"\b(\d{1,6}) ?(ms|milli|s|m|h)[a-z]{0,7}\b",
    re.IGNORECASE,
)
_PUSH_BACK_UNITS = {"ms": 0.001, "milli": 0.001, "s": 1, "m": 60, "h": 3_600}
_NO_FACTS = _Facts()
_ATTRIBUTES = (
    *("smtp_code", "smtp_error", "recipients", "code", "message", "response", "status_code", "status", "headers"),
    *("retry_after", "__getattr__"),
)
_MAX_CAUSES = 3
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python\d\.\d+)[/\\]|^<")
_PHRASES = {str(status.value): [status.phrase.lower()] for status in HTTPStatus}
_PHRASES["503"].append("service temporarily unavailable")
_PHRASES["504"].append("gateway time-out")


def _failure(
    facts: _Facts,
    message: str,
    types: tuple[str, ...],
    dependency: str,
    cause: Failure | None = None,
    frames: tuple[Frame, ...] = (),
) -> Failure:
    return Failure(
        message=message,
        types=types,
        code=facts.code,
        enhanced=facts.enhanced,
        protocol=facts.protocol,
        retry_after=_push_back_in(message) if facts.retry_after is None else facts.retry_after,
        dependency=dependency,
        frames=frames,
        cause=cause,
        network=facts.network,
        bare_code=facts.bare_code,
    )


def _read_text(text: str) -> _Facts:
    if aws := _AWS.search(text):
        return _Facts(code=aws[1], protocol="aws")
    if http := _HTTP.search(text):
        return _Facts(code=http[1] or http[2], protocol="http")
    if not (smtp := _SMTP.match(text)):
        enhanced = _ENHANCED.search(text)
        status = (enhanced[1] or enhanced[2]) if enhanced else ""
        return _Facts(code=status, enhanced=status, protocol="smtp" if status else "")
    code, enhanced_status = smtp[1], smtp[2] or ""
    if not enhanced_status and text[smtp.end() :].strip(" :-").lower().startswith(tuple(_PHRASES.get(code, ()))):
        return _Facts(code=code, protocol="http")
    says_smtp = enhanced_status or text[:4].lower() == "smtp" or text[0] == "("
    return _Facts(code=code, enhanced=enhanced_status, protocol="smtp" if says_smtp else "")


def _read_exception(error: BaseException, dependency: str, now: int | None, depth: int = 0) -> Failure:
    error = _informative(error)
    types = _class_names(type(error))  # type: ignore[arg-type]  # mypy does not know that a class is hashable
    facts = _facts_of(error, types, now)
    message = clean(facts.message or _text_of(error)) or types[0]
    if not facts.code and (reply := _PLAIN_REPLY.match(message)):
        facts = facts._replace(code=reply[1], enhanced=reply[2] or "", protocol="smtp")
    facts = facts._replace(network=network_error_behind(error))
    cause = error.__cause__
    # Causes may form a cycle, so only the first few are read.
    known = None if cause is None or depth == _MAX_CAUSES else _read_exception(cause, dependency, now, depth + 1)
    return _failure(facts, message, types, dependency, known, _frames_of(error))


def _facts_of(error: BaseException, types: tuple[str, ...], now: int | None) -> _Facts:
    if not error.__dict__ and _has_no_facts(type(error)):  # type: ignore[arg-type]  # as above
        return _NO_FACTS
    try:
        facts = _read_smtp(error, types) or _read_aws(error) or _read_http(error, types, now) or _read_code(error)
        if facts.retry_after is None:
            facts = facts._replace(retry_after=_number(getattr(error, "retry_after", None)))
    except Exception:  # noqa: BLE001 - foreign attributes may raise anything, and the failure must still be recorded
        return _Facts()
    return facts._replace(code=clean_code(facts.code), bare_code=clean_code(facts.bare_code))


@lru_cache(maxsize=512)
def _has_no_facts(kind: type) -> bool:
    """Whether this class has none of the attributes that we read, so that only an instance's own count."""
    return not any(hasattr(kind, name) for name in _ATTRIBUTES)


def _frames_of(error: BaseException) -> tuple[Frame, ...]:
    """Return the innermost calls of the application's own code, without those of libraries."""
    frames: list[Frame] = []
    trace = error.__traceback__
    while trace is not None:
        code, module = trace.tb_frame.f_code, trace.tb_frame.f_globals.get("__name__", "")
        if not _is_library(code.co_filename) and not str(module).startswith("reprieve."):
            frames.append(Frame(module=str(module), function=code.co_qualname))
        trace = trace.tb_next
    return tuple(frames[-MAX_FRAMES:])


@lru_cache(maxsize=4_096)
def _is_library(path: str) -> bool:
    return _LIBRARY.search(path) is not None


def _informative(error: BaseException) -> BaseException:
    """Return the exception that says what happened, inside those that only wrap it."""
    for _ in range(_MAX_CAUSES + 1):
        # The first of a group: its siblings were most likely cancelled because of it.
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        # urllib's URLError keeps the socket's error as its reason, not as its cause.
        inner = getattr(error, "reason", None) if inner is None and "URLError" in type(error).__name__ else inner
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def _read_smtp(error: BaseException, types: tuple[str, ...]) -> _Facts | None:
    """Read the exceptions of smtplib and aiosmtplib; of several refused recipients, the one with the lowest code."""
    code: object = getattr(error, "smtp_code", None)
    text: object = getattr(error, "smtp_error", b"")
    recipients: object = getattr(error, "recipients", None)
    if isinstance(recipients, Mapping) and recipients:
        # A recipient that may still get the mail decides for all: a useless retry costs less than a lost mail.
        code, text = min(recipients.values(), key=lambda reply: reply[0])
    elif isinstance(recipients, list | tuple) and recipients:
        return _read_smtp(min(recipients, key=lambda refused: getattr(refused, "code", 999)), types)
    elif code is None and any(name.startswith("aiosmtplib.") for name in types):
        code, text = getattr(error, "code", None), getattr(error, "message", "")
    if not isinstance(code, int):
        return None
    message = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    enhanced = _ENHANCED.search(clean(message))
    status = (enhanced[1] or enhanced[2]) if enhanced else ""
    return _Facts(message=f"{code} {message}", code=str(code), enhanced=status, protocol="smtp")


def _read_aws(error: BaseException) -> _Facts | None:
    """Read botocore's ClientError, whose response is a mapping."""
    response = getattr(error, "response", None)
    if not isinstance(response, Mapping) or not isinstance(response.get("Error"), Mapping):
        return None
    headers = (response.get("ResponseMetadata") or {}).get("HTTPHeaders") or {}
    return _Facts(
        message=clean(str(error)),
        code=str(response["Error"].get("Code", "")),
        protocol="aws",
        retry_after=_retry_after(headers, None),
    )


def _read_http(error: BaseException, types: tuple[str, ...], now: int | None) -> _Facts | None:
    """Read the status from exceptions of requests, httpx, aiohttp, urllib, and others that carry one."""
    response = getattr(error, "response", None)
    places = [(response, "status_code"), (response, "status"), (error, "status_code"), (error, "status")]
    if "urllib.error.HTTPError" in types:
        places.append((error, "code"))
    for holder, name in places:
        status = getattr(holder, name, None)
        if isinstance(status, int) and 100 <= status <= 599:  # noqa: PLR2004 - the range of HTTP statuses
            headers = getattr(holder, "headers", None)
            return _Facts(code=str(int(status)), protocol="http", retry_after=_retry_after(headers, now))
    return None


def _read_code(error: BaseException) -> _Facts:
    """Read the attribute `code` of other exceptions, with the protocol that the name of the class says."""
    code = getattr(error, "code", None)
    if isinstance(code, bool) or not isinstance(code, int | str) or not code:
        return _Facts()
    names = [kind.__name__ for kind in type(error).__mro__]
    if is_reply_code(str(code)):
        return _Facts(code=str(code), protocol="smtp") if any(map(_SMTP_CLASS.search, names)) else _bare(code)
    return _Facts(code=str(code), protocol="aws") if any(map(_AWS_CLASS.search, names)) else _bare(code)


def _bare(code: int | str) -> _Facts:
    return _Facts(bare_code=str(code))


def is_reply_code(code: str) -> bool:
    """Whether a code has the form of an SMTP reply that refuses something."""
    return len(code) == 3 and code.isdecimal() and code[0] in "45"  # noqa: PLR2004 - the digits of a reply


def _retry_after(headers: object, now: int | None) -> float | None:
    get = getattr(headers, "get", None)
    if get is None:
        return None
    value = get("Retry-After") or get("retry-after")
    if value is None or (number := _number(value)) is not None:
        return None if value is None else number
    reference = _timestamp(get("Date") or get("date"))
    asked = _timestamp(value)
    if reference is None and now is not None:
        reference = now / 1_000
    if asked is None or reference is None:
        return None
    return clamp(asked - reference, MAX_PUSH_BACK_SECONDS)


def _timestamp(value: object) -> float | None:
    try:
        parsed: datetime = parsedate_to_datetime(str(value))
    except (ValueError, OverflowError):
        return None
    return parsed.timestamp() if parsed.tzinfo else None


def _number(value: object) -> float | None:
    """Return a clamped number of seconds, or None if the value is not a number."""
    if not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else clamp(number, MAX_PUSH_BACK_SECONDS)


@lru_cache(maxsize=512)
def _push_back_in(message: str) -> float | None:
    found = _PUSH_BACK.search(message)
    if found is None:
        return None
    return clamp(int(found[1]) * _PUSH_BACK_UNITS[found[2].lower()], MAX_PUSH_BACK_SECONDS)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a foreign __str__ may raise anything, and the failure must still be recorded
        return ""


@lru_cache(maxsize=512)
def _class_names(kind: type) -> tuple[str, ...]:
    """Return the names of the exception's classes, most specific first."""
    return tuple(class_name(ancestor) for ancestor in kind.__mro__ if ancestor is not object)
