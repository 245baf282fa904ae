"""What SQLite says when it cannot, in words that help."""

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
    "SQLITE_NOTADB": (ForeignStore, "the file is no SQLite database; name another one"),
}


def translate(error: Exception) -> ReprieveError:
    """Return an error of ours for an error of SQLite's."""
    if isinstance(error, ReprieveError):
        return error
    name = getattr(error, "sqlite_errorname", "") or ""
    for prefix, (kind, advice) in _KINDS.items():
        if name.startswith(prefix):
            translated: StoreError = kind(f"{advice} ({error})")
            translated.__cause__ = error
            return translated
    if isinstance(error, msgspec.MsgspecError):
        damaged = StoreCorrupt(f"a record of the store cannot be read; restore the file from a backup ({error})")
        damaged.__cause__ = error
        return damaged
    if isinstance(error, OSError):
        unusable = StoreReadOnly(f"the file cannot be used; check its name and its permissions ({error})")
        unusable.__cause__ = error
        return unusable
    unknown = StoreError(f"SQLite failed: {type(error).__name__}: {error}")
    unknown.__cause__ = error
    return unknown


def is_busy(error: Exception) -> bool:
    """Whether somebody else was in the way for as long as anybody waits."""
    return isinstance(translate(error), StoreLocked)
