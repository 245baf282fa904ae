"""The embedded store: one SQLite file, no set-up, nothing acknowledged is lost."""

from reprieve.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
