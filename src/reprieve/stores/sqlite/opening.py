"""Opening what a SQLite URL names."""

from reprieve.errors import StoreNotFound
from reprieve.stores.factories import OpenOptions, require_store
from reprieve.stores.sqlite.diagnostics import SqliteDiagnostics
from reprieve.stores.sqlite.outbox import SqliteOutbox
from reprieve.stores.sqlite.store import SqliteStore
from reprieve.stores.url import path_of


def open_store(url: str, options: OpenOptions) -> SqliteStore:
    """Open the store in a file, or in memory."""
    path = path_of(url)
    if options.must_exist and path is None:
        message = f"{url} exists only in the process that opened it; to read jobs from outside, keep them in a file"
        raise StoreNotFound(message)
    if options.must_exist and path is not None:
        missing = f"{path.absolute()} {'holds no jobs yet' if path.exists() else 'does not exist'}"
        require_store(SqliteDiagnostics(path, shared=options.shared).schema_version().stored, missing)
    return SqliteStore(
        path,
        # The file is flushed before a call returns, so "strict" adds nothing to "full".
        durability="fast" if options.durability == "fast" else "full",
        shared=options.shared,
        may_wait=options.may_wait,
        to_read=options.must_exist,
    )


def open_outbox(url: str, options: OpenOptions) -> SqliteOutbox:
    """Open the outbox in a file."""
    return SqliteOutbox(path_of(url), largest_payload=options.largest_payload)


def open_diagnostics(url: str, options: OpenOptions) -> SqliteDiagnostics:
    """Return the diagnostics of a file."""
    return SqliteDiagnostics(path_of(url), shared=options.shared)
