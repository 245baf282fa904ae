"""The mapping of SQLite's errors to ours, with advice."""

import msgspec

from reprieve.errors import (
    ForeignStore,
    ReprieveError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
)

_KINDS: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_BUSY": (StoreLocked, "another process holds the write lock; end its transaction, or keep it shorter"),
    "SQLITE_LOCKED": (StoreLocked, "another connection of this process holds the table; end its transaction"),
    "SQLITE_READONLY": (StoreReadOnly, "the file cannot be written; check its permissions and its file system"),
    "SQLITE_CANTOPEN": (StoreReadOnly, "the file cannot be opened; check that its folder exists and can be written"),
    "SQLITE_PERM": (StoreReadOnly, "the file cannot be written; check its permissions"),
    "SQLITE_FULL": (StoreFull, "the disk is full; make room, nothing of this call was stored"),
    "SQLITE_IOERR": (StoreFull, "the file system refused to write; check the disk, nothing of this call was stored"),
    "SQLITE_CORRUPT": (StoreCorrupt, "the file is damaged; restore it from a backup, or recover it with sqlite3"),
    "SQLITE_NOTADB": (ForeignStore, "the file is not a SQLite database; name another one"),
}


def translate(error: Exception) -> ReprieveError:
    """Return the `ReprieveError` for an error of SQLite, the file system or a record."""
    if isinstance(error, ReprieveError):
        return error
    name = getattr(error, "sqlite_errorname", "") or ""
    translated = next(
        (kind(f"{advice} ({error})") for prefix, (kind, advice) in _KINDS.items() if name.startswith(prefix)), None
    )
    if translated is None and isinstance(error, msgspec.MsgspecError):
        translated = StoreCorrupt(f"a record of the store cannot be read; restore the file from a backup ({error})")
    elif translated is None and isinstance(error, OSError):
        translated = StoreReadOnly(f"the file cannot be used; check its name and its permissions ({error})")
    elif translated is None:
        translated = StoreError(f"SQLite failed: {type(error).__name__}: {error}")
    translated.__cause__ = error
    return translated


def is_busy(error: Exception) -> bool:
    """Whether another transaction held a lock for longer than a call waits."""
    return isinstance(translate(error), StoreLocked)
