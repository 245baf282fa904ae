"""Error mapping: errors of Redis and of its driver become errors of ours, with what to do about them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from redis import exceptions as redis_errors

from reprieve.errors import (
    ForeignStore,
    ReprieveError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnreachable,
)
from reprieve.stores.compatibility import refusal
from reprieve.stores.url import unreachable

DRIVER_ERRORS = (redis_errors.RedisError, redis_errors.RedisClusterException, OSError)
"""Everything that the driver raises when a call fails."""


_CLOSED = ("'NoneType' object has no attribute", "'NoneType' object is not callable", "the handler is closed")
"""What the driver, asyncio and uvloop say of a connection that was closed while another task began to use it."""


@contextmanager
def closed_as_broken() -> Iterator[None]:
    """Raise the driver's `ConnectionError` for a connection that was closed while the call began to use it.

    A store that is closed, and a primary that was deposed, close connections under calls that use them.
    """
    try:
        yield
    except (AttributeError, RuntimeError, TypeError) as error:
        if any(words in str(error) for words in _CLOSED):
            raise redis_errors.ConnectionError(str(error)) from error
        raise


_NEWER = "NEWERSCHEMA "
"""How the reply of a script begins that cannot use the store any more: see `calls.lua`."""

_FULL = "the server is full; a part of this call may be stored, and it can be repeated with the same ids"

_REFUSED = "the server does not take this user and password; check those in the URL"

_MOVING = "the slot of this partition is being moved to another node, or has just been"

_IN_SCRIPT = re.compile(r"^(?:ERR )?Error running script \(call to \w+\): (?:@?user_script:\s?\d+: )*-?")
"""What Redis 6.2 puts before the text of an error inside a script."""

_WORDS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("OOM", StoreFull, f"{_FULL}: raise maxmemory, or let workers drain it"),
    ("MISCONF", StoreReadOnly, "the server cannot save to its disk and takes no writes; look at its log and its disk"),
    ("READONLY", StoreError, "this is a replica, which takes no writes; name its primary, or use redis+sentinel://"),
    ("NOREPLICAS", StoreError, "too few replicas follow the primary for it to take writes (min-replicas-to-write)"),
    ("LOADING", StoreError, "the server still reads its data from disk"),
    ("BUSY", StoreError, "a script of another application keeps the server busy"),
    ("MASTERDOWN", StoreError, "this replica has lost its primary"),
    ("CLUSTERDOWN", StoreError, "the Cluster is down: no node serves some of its slots"),
    ("MOVED", ForeignStore, "this is a node of a Cluster; name it as redis+cluster://"),
    ("CROSSSLOT", ForeignStore, "this is a node of a Cluster; name it as redis+cluster://"),
    ("WRONGTYPE", ForeignStore, "a key that begins as ours is of another kind; choose another prefix, or remove it"),
    ("NOAUTH", StoreRefused, "the server wants a password; write it in the URL: redis://:password@host"),
    ("WRONGPASS", StoreRefused, _REFUSED),
    ("NOPERM", StoreRefused, "the user may not do this; give it the commands and keys that deploy/redis.acl lists"),
    ("DENIED", StoreRefused, "the server is in protected mode and refuses other hosts; set a password"),
)
"""The first word of an error, what it becomes, and what to do."""

_PHRASES: tuple[tuple[str, type[StoreError], str], ...] = (
    ("luster mode is not enabled", ForeignStore, "this is a single server; name it as redis://"),
    ("luster support disabled", ForeignStore, "this is a single server; name it as redis://"),
    ("TTL exhausted", StoreError, _MOVING),
    ("redirected: ", StoreError, _MOVING),
)
"""Phrases in errors of a Cluster, of its driver or of ours, what the error becomes, and what it means."""

_KINDS: tuple[tuple[type[Exception], type[StoreError], str], ...] = (
    (redis_errors.OutOfMemoryError, StoreFull, _FULL),
    (redis_errors.BusyLoadingError, StoreError, "the server still reads its data from disk"),
    (redis_errors.ReadOnlyError, StoreError, "this is a replica, which takes no writes"),
    (redis_errors.AuthenticationError, StoreRefused, _REFUSED),
    (redis_errors.AuthorizationError, StoreRefused, _REFUSED),
    (redis_errors.NoPermissionError, StoreRefused, "the user may not do this; give it what deploy/redis.acl lists"),
)
"""Error types of the driver, whatever their text."""

_PASSING = ("LOADING", "MASTERDOWN", "NOREPLICAS", "READONLY", "UNKILLABLE", "TRYAGAIN", "CLUSTERDOWN")
"""First words of errors that pass, as when another server becomes the primary."""

_AWAY = (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.RedisClusterException, OSError)


def map_error(error: Exception, shown: str = "") -> ReprieveError:
    """Return our error for an error of Redis or of its driver; `shown` is the URL of the server, masked."""
    if isinstance(error, ReprieveError):
        return error
    mapped: StoreError
    if isinstance(error, msgspec.MsgspecError | UnicodeDecodeError):
        mapped = StoreCorrupt(f"a record of the store cannot be read; restore it from a backup ({error})")
    else:
        mapped = _mapped(error, str(error), shown)
    mapped.__cause__ = error
    return mapped


def _mapped(error: Exception, text: str, shown: str) -> StoreError:
    if text.startswith(_NEWER):
        _, _, oldest_release, migrated_by = text.split(" ")
        return refusal(oldest_release, migrated_by)
    # The driver removes first words that it knows from the text, and keeps them apart.
    first = getattr(error, "status_code", None), _IN_SCRIPT.sub("", text).partition(" ")[0]
    known = next((known[1:] for known in _WORDS if known[0] in first), None)
    known = known or next((known[1:] for known in _PHRASES if known[0] in text), None)
    known = known or next((known[1:] for known in _KINDS if isinstance(error, known[0])), None)
    if known is not None:
        kind, advice = known
        return kind(f"{advice} ({text})")
    if isinstance(error, _AWAY):
        return StoreUnreachable(unreachable(shown, text or type(error).__name__))
    return StoreError(f"Redis failed: {type(error).__name__}: {text}")


def is_transient(error: Exception) -> bool:
    """Whether the same call may soon succeed: the server restarts, fails over, or the connection broke."""
    if isinstance(error, redis_errors.AuthenticationError | redis_errors.AuthorizationError):
        return False
    passing = (
        redis_errors.ConnectionError,
        redis_errors.TimeoutError,
        redis_errors.BusyLoadingError,
        redis_errors.ReadOnlyError,
        redis_errors.ClusterError,
        OSError,
    )
    if isinstance(error, passing):
        return True
    if isinstance(error, redis_errors.RedisClusterException):
        return "not enabled" not in str(error)
    return _IN_SCRIPT.sub("", str(error)).startswith(_PASSING)
