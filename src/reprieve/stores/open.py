"""Opening a store by its URL."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from reprieve.errors import InvalidUrl, MissingExtra, StoreNotFound
from reprieve.stores.care import Care
from reprieve.stores.outbox import Outbox
from reprieve.stores.protocol import MAX_PAYLOAD_BYTES, Store
from reprieve.stores.url import masked, path_of

_POSTGRES = ("postgresql", "postgres")
_REDIS = (
    *("redis", "rediss", "valkey", "valkeys"),
    *("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"),
)


def open_store(
    url: str,
    *,
    durability: Literal["full", "fast", "strict"] = "full",
    largest_payload: int = MAX_PAYLOAD_BYTES,
    shared: bool = False,
    must_exist: bool = False,
    may_wait: bool = True,
) -> Store:
    """Open the store that a URL names.

    `sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite://:memory:`;
    `postgresql://user:password@host/database`, with `?schema=name` for a schema other than `reprieve`;
    `redis://user:password@host:6379/0`, `rediss://` with TLS, `redis+sentinel://host,host/service` or
    `redis+cluster://host,host`, with `?prefix=name` for keys that begin otherwise.

    It can be used from every event loop and thread of this process.

    `shared` lets jobs stand in a file that an application has tables of its own in.

    `must_exist` is for reading: a SQLite file or a PostgreSQL schema that holds no store raises `StoreNotFound`, and
    nothing is created. A Redis server without jobs is an empty store.

    `may_wait=False` is for a caller with an open transaction, perhaps on the file of the store: instead of waiting for
    its end, opening raises `StoreNotFound`.
    """
    scheme, _, _ = url.partition("://")
    if must_exist and scheme not in _REDIS:
        _require_store(url, shared=shared)
    # Only a Redis server can answer before what it answers is flushed.
    flushed: Literal["full", "fast"] = "fast" if durability == "fast" else "full"
    if scheme == "sqlite":
        from reprieve.stores.sqlite import SqliteStore  # noqa: PLC0415 - a store is imported when it is used

        return SqliteStore(
            path_of(url), durability=flushed, largest_payload=largest_payload, shared=shared, may_wait=may_wait
        )
    if scheme in _POSTGRES:
        with _extra("postgres"):
            from reprieve.stores.postgres import PostgresStore  # noqa: PLC0415 - as above

        return PostgresStore(url, durability=flushed, largest_payload=largest_payload)
    if scheme in _REDIS:
        with _extra("redis"):
            from reprieve.stores.redis import RedisStore  # noqa: PLC0415 - as above

        return RedisStore(url, durability=durability, largest_payload=largest_payload)
    raise _unanswered(url)


def open_outbox(url: str, *, largest_payload: int = MAX_PAYLOAD_BYTES) -> Outbox:
    """Open the outbox in the database that a URL names: an application's own, PostgreSQL or a SQLite file."""
    scheme, _, _ = url.partition("://")
    if scheme == "sqlite":
        from reprieve.stores.sqlite.outbox import SqliteOutbox  # noqa: PLC0415 - as above

        return SqliteOutbox(path_of(url), largest_payload=largest_payload)
    if scheme in _POSTGRES:
        with _extra("postgres"):
            from reprieve.stores.postgres.outbox import PostgresOutbox  # noqa: PLC0415 - as above

        return PostgresOutbox(url, largest_payload=largest_payload)
    message = (
        f"no outbox answers to {masked(url)!r}; write postgresql://user:password@host/database or sqlite:///app.db"
    )
    raise InvalidUrl(message)


def care_for(url: str, *, shared: bool = False) -> Care:
    """Return the care of the store that a URL names; it is looked at from outside, and need not exist yet."""
    scheme, _, _ = url.partition("://")
    if scheme == "sqlite":
        from reprieve.stores.sqlite.care import SqliteCare  # noqa: PLC0415 - as above

        return SqliteCare(path_of(url), shared=shared)
    if scheme in _POSTGRES:
        with _extra("postgres"):
            from reprieve.stores.postgres.address import address_of  # noqa: PLC0415 - as above
            from reprieve.stores.postgres.diagnostics import PostgresDiagnostics  # noqa: PLC0415 - as above

        return PostgresDiagnostics(address_of(url))
    if scheme in _REDIS:
        with _extra("redis"):
            from reprieve.stores.redis import address as redis  # noqa: PLC0415 - as above
            from reprieve.stores.redis.care import RedisCare  # noqa: PLC0415 - as above

        return RedisCare(redis.address_of(url))
    raise _unanswered(url)


def _require_store(url: str, *, shared: bool) -> None:
    """Refuse a URL that names no store yet, without creating one."""
    path = path_of(url) if url.startswith("sqlite://") else None
    if url.startswith("sqlite://") and path is None:
        message = f"{url} is gone with the process that opened it; to look at jobs from outside, keep them in a file"
        raise StoreNotFound(message)
    if care_for(url, shared=shared).layout().stored:
        return
    if path is None:
        where = f"{masked(url)} has no store yet"
    else:
        where = f"{path.absolute()} {'holds no jobs yet' if path.exists() else 'does not exist'}"
    message = (
        f"{where}; the first enqueue, the first worker or reprieve migrate up creates the store, "
        "or name the app (--app) or the store (--store) that you mean"
    )
    raise StoreNotFound(message)


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Say how to install what is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"the {name} store needs {error.name}, which is not installed; pip install 'reprieve[{name}]'"
        raise MissingExtra(message) from error


def _unanswered(url: str) -> InvalidUrl:
    dialect, plus, _ = url.partition("://")[0].partition("+")
    if plus and dialect in ("sqlite", *_POSTGRES, *_REDIS):
        # SQLAlchemy names its driver there.
        return InvalidUrl(f"{masked(url)!r} names a driver; write {dialect}:// without it")
    forms = "sqlite:///jobs.db, sqlite://:memory:, postgresql://user:password@host/database or redis://host:6379/0"
    return InvalidUrl(f"no store answers to {masked(url)!r}; write {forms}")
