"""Opening a store, an outbox or the diagnostics of a store by its URL."""

from typing import Literal

from reprieve.stores.checked import CheckedStore, checked
from reprieve.stores.diagnostics import Diagnostics
from reprieve.stores.factories import BuiltIn, Factories, OpenOptions
from reprieve.stores.outbox import Outbox
from reprieve.stores.protocol import MAX_PAYLOAD_BYTES, Store

_POSTGRES = ("postgresql", "postgres")
_POSTGRES_FORM = "postgresql://user:password@host/database"
_REDIS = (
    *("redis", "rediss", "valkey", "valkeys"),
    *("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"),
)
_REDIS_FORM = "redis://host:6379/0"


def _built_in(function: str, sqlite_form: str = "sqlite:///jobs.db, sqlite://:memory:") -> tuple[BuiltIn, ...]:
    """Return SQLite, PostgreSQL and Redis, each with this function of its module `opening`."""
    return (
        BuiltIn(schemes=("sqlite",), target=f"reprieve.stores.sqlite.opening:{function}", example=sqlite_form),
        BuiltIn(
            schemes=_POSTGRES,
            target=f"reprieve.stores.postgres.opening:{function}",
            example=_POSTGRES_FORM,
            extra="postgres",
        ),
        BuiltIn(schemes=_REDIS, target=f"reprieve.stores.redis.opening:{function}", example=_REDIS_FORM, extra="redis"),
    )


_STORES: Factories[Store] = Factories("store", "reprieve.stores", _built_in("open_store"))
_OUTBOXES: Factories[Outbox] = Factories(
    "outbox",
    "reprieve.outboxes",
    [one for one in _built_in("open_outbox", "sqlite:///app.db") if one.extra != "redis"],
)
_DIAGNOSTICS: Factories[Diagnostics] = Factories("store", "reprieve.diagnostics", _built_in("open_diagnostics"))


def open_store(  # noqa: PLR0913 - all options of a store: keywords with defaults
    url: str,
    *,
    durability: Literal["full", "fast", "strict"] = "full",
    largest_payload: int = MAX_PAYLOAD_BYTES,
    shared: bool = False,
    must_exist: bool = False,
    may_wait: bool = True,
    stuck_after: float | None = None,
) -> CheckedStore:
    """Open the store that a URL names, behind `checked`.

    `sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite://:memory:`;
    `postgresql://user:password@host/database`, with `?schema=name` for a schema other than `reprieve`;
    `redis://user:password@host:6379/0`, `rediss://` with TLS, `redis+sentinel://host,host/service` or
    `redis+cluster://host,host`, with `?prefix=name` for another prefix of its keys.
    Other packages can register more schemes; see `stores.factories`.

    The store can be used from every event loop and thread of this process.

    `shared` allows a SQLite file that has tables of an application.

    `must_exist` is for reading: a SQLite file or a PostgreSQL schema without a store raises `StoreNotFound`, and
    nothing is created. A Redis server without jobs is an empty store.

    `may_wait=False` is for a caller with an open transaction, perhaps on the file of the store: opening raises
    `StoreNotFound` where it would wait for the end of that transaction.

    `stuck_after` are the seconds after which searches take a running job for stuck; half an hour unless given.
    """
    options = OpenOptions(
        durability=durability,
        largest_payload=largest_payload,
        shared=shared,
        must_exist=must_exist,
        may_wait=may_wait,
    )
    return checked(_STORES.open(url, options), largest_payload=largest_payload, stuck_after=stuck_after)


def open_outbox(url: str, *, largest_payload: int = MAX_PAYLOAD_BYTES) -> Outbox:
    """Open the outbox in the application's database that a URL names: PostgreSQL or a SQLite file."""
    return _OUTBOXES.open(url, OpenOptions(largest_payload=largest_payload))


def diagnostics_for(url: str, *, shared: bool = False) -> Diagnostics:
    """Return the diagnostics of the store that a URL names, which need not exist yet."""
    return _DIAGNOSTICS.open(url, OpenOptions(shared=shared))
