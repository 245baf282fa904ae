"""Opening what a PostgreSQL URL names."""

from reprieve.core.redact import mask_url
from reprieve.stores.factories import OpenOptions, require_store
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.diagnostics import PostgresDiagnostics
from reprieve.stores.postgres.outbox import PostgresOutbox
from reprieve.stores.postgres.store import PostgresStore


def open_store(url: str, options: OpenOptions) -> PostgresStore:
    """Open the store in a schema."""
    if options.must_exist:
        require_store(open_diagnostics(url, options).schema_version().stored, f"{mask_url(url)} has no store yet")
    # The server flushes before a call returns, so "strict" adds nothing to "full".
    return PostgresStore(url, durability="fast" if options.durability == "fast" else "full")


def open_outbox(url: str, options: OpenOptions) -> PostgresOutbox:
    """Open the outbox in a schema."""
    return PostgresOutbox(url, largest_payload=options.largest_payload)


def open_diagnostics(url: str, options: OpenOptions) -> PostgresDiagnostics:  # noqa: ARG001 - a factory takes them
    """Return the diagnostics of a schema."""
    return PostgresDiagnostics(address_of(url))
