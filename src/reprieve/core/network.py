"""The network error behind a failure, by its symbolic name, such as ECONNREFUSED or EAI_AGAIN.

Each library wraps the error of the operating system in its own way. This module finds it; it does not classify it.
"""

import errno
import re
from functools import lru_cache

MAX_DEPTH = 8
"""Nested exceptions that are searched; causes may form a cycle."""

UNREACHABLE = frozenset({"ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EHOSTDOWN", "ENETDOWN", "EAI_AGAIN"})
"""Errors before a connection exists: the other side has not seen the request."""

CONNECT_TIMEOUT = "connect timeout"
"""A timeout while connecting; errno has no name of its own for it."""

_EAI_AGAIN = (-3, 2, 11_002)
"""EAI_AGAIN on Linux, on BSD and macOS, and on Windows. The constant is in `socket`, which the core does not import."""

_WRAPPERS = frozenset({"aiohttp", "aiosmtplib", "botocore", "httpx", "redis", "requests", "urllib3"})
"""Libraries that replace the system's error with their own without `raise … from`."""

_NUMBERED = re.compile(r"\[Errno (-?\d{1,5})\]")
_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(words, re.IGNORECASE))
    for name, words in (
        ("ECONNREFUSED", r"connection refused|actively refused|\bECONNREFUSED\b"),
        ("EHOSTUNREACH", r"no route to host|\bEHOSTUNREACH\b"),
        ("ENETUNREACH", r"network is unreachable|\bENETUNREACH\b"),
        ("EHOSTDOWN", r"host is down|\bEHOSTDOWN\b"),
        ("ENETDOWN", r"network is down|\bENETDOWN\b"),
        ("EAI_AGAIN", r"temporary failure in name resolution|\bEAI_AGAIN\b"),
        (CONNECT_TIMEOUT, r"connect timeout|timeout connecting|connection timeout (?:to host|expired)"),
    )
)


@lru_cache(maxsize=512)
def network_error_in(text: str) -> str:
    """Return the name of the network error that a text mentions, or an empty string."""
    numbers = _NUMBERED.findall(text)
    if len(numbers) > 1:
        # asyncio puts the errors of all addresses that it tried into one text.
        return _decisive([_name_of_number(int(number)) for number in numbers])
    # Wording is the same everywhere; numbers depend on the operating system.
    worded = next((name for name, words in _WORDS if words.search(text)), "")
    return worded or (_name_of_number(int(numbers[0])) if numbers else "")


def network_error_behind(error: BaseException) -> str:
    """Return the name of the network error in an exception or in what it wraps, or an empty string."""
    try:
        return _search(error, MAX_DEPTH)
    except Exception:  # noqa: BLE001 - foreign attributes may raise anything, and the failure must still be recorded
        return ""


def _search(error: BaseException, depth: int) -> str:
    if not depth:
        return ""
    if isinstance(error, BaseExceptionGroup):
        return _decisive([_search(each, depth - 1) for each in error.exceptions])
    # aiohttp keeps the error in `os_error`, urllib and urllib3 in `reason`, requests and httpcore in their arguments.
    kept = (getattr(error, "os_error", None), getattr(error, "reason", None), *error.args[:1])
    inner = next((each for each in kept if isinstance(each, BaseException)), None)
    if inner is None and (name := _own_name(error)):
        return name
    if inner is None:
        inner = error.__cause__
    if inner is None and not error.__suppress_context__ and _is_wrapper(error):
        inner = error.__context__
    return "" if inner is None else _search(inner, depth - 1)


def _is_wrapper(error: BaseException) -> bool:
    """Whether the error's `__context__` is its cause; a bug in an `except` block has an unrelated context."""
    kind = type(error)
    return kind.__module__.partition(".")[0] in _WRAPPERS and "Timeout" not in kind.__name__


def _own_name(error: BaseException) -> str:
    if not isinstance(error, OSError):
        return ""
    classes = {kind.__name__ for kind in type(error).__mro__}
    if "SSLError" in classes:
        # Its numbers are OpenSSL's. The TCP connection existed before the handshake began.
        return "SSL"
    if "gaierror" in classes:
        return "EAI_AGAIN" if error.errno in _EAI_AGAIN else "EAI"
    if error.errno is not None:
        return errno.errorcode.get(error.errno, "")
    return "ECONNREFUSED" if isinstance(error, ConnectionRefusedError) else network_error_in(str(error))


def _name_of_number(number: int) -> str:
    return "EAI_AGAIN" if number == _EAI_AGAIN[0] else errno.errorcode.get(number, "EAI")


def _decisive(names: list[str]) -> str:
    """Return the error of several addresses tried in turn: unreachable only if all of them are."""
    return next((name for name in names if name not in UNREACHABLE), names[0])
