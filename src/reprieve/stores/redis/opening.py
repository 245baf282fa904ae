"""Opening what a Redis URL names."""

from reprieve.stores.factories import OpenOptions
from reprieve.stores.redis.address import address_of
from reprieve.stores.redis.diagnostics import RedisDiagnostics
from reprieve.stores.redis.store import RedisStore


def open_store(url: str, options: OpenOptions) -> RedisStore:
    """Open the store on a server or cluster; one without jobs is an empty store."""
    return RedisStore(url, durability=options.durability)


def open_diagnostics(url: str, options: OpenOptions) -> RedisDiagnostics:  # noqa: ARG001 - a factory takes them
    """Return the diagnostics of a server or cluster."""
    return RedisDiagnostics(address_of(url))
