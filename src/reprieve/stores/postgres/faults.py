"""What PostgreSQL says when it cannot, in words that help."""

import re

import msgspec
import psycopg

from reprieve.errors import (
    ForeignStore,
    ReprieveError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreRefused,
    StoreUnreachable,
)
from reprieve.stores.url import unreachable

_READ_ONLY = "25006"
_UNSUPPORTED = "0A000"
_UNKNOWN_NAME = "26000"
_CHECK = "call_bool_check_hook"
"""The function of the server that refuses the value of a setting; unlike its words, it is never translated."""

_KINDS: dict[str, tuple[type[StoreError], str]] = {
    _READ_ONLY: (StoreReadOnly, "the database is read-only; name the primary server, not a replica"),
    "25P03": (StoreLocked, "the server ended a transaction that stood still for too long; repeat the call"),
    "28": (StoreRefused, "the server refuses the user or the password; check the URL"),
    "3D000": (StoreRefused, "the database does not exist; create it, or name another one in the URL"),
    "3F000": (ForeignStore, "the schema does not exist; run reprieve migrate up"),
    "40": (StoreLocked, "somebody else changed the same rows; repeat the call"),
    "42501": (StoreRefused, "the user may not do this; grant it the rights to the schema"),
    "42883": (ForeignStore, "the schema lacks a function of ours; run reprieve migrate up"),
    "42P01": (ForeignStore, "the schema lacks a table of ours; run reprieve migrate up"),
    "53100": (StoreFull, "the server's disk is full; make room, nothing of this call was stored"),
    "53300": (StoreLocked, "the server has no connection left; raise max_connections, or use fewer processes"),
    "53": (StoreFull, "the server has too little of something; nothing of this call was stored"),
    "55P03": (StoreLocked, "somebody holds the store's turn for too long; end their transaction"),
    "57014": (StoreLocked, "the server cancelled the statement; repeat the call"),
    "XX001": (StoreCorrupt, "the database is damaged; restore it from a backup"),
    "XX002": (StoreCorrupt, "an index of the database is damaged; reindex it, and look for what damaged it"),
}

_REFUSALS: dict[str, tuple[type[StoreError], str]] = {
    "password authentication failed": _KINDS["28"],
    "no password supplied": (StoreRefused, "the server asks for a password; put it into the URL, or into PGPASSWORD"),
    "no pg_hba.conf entry": (StoreRefused, "the server refuses connections from this host; allow it in pg_hba.conf"),
    r'(database|role|user) ".*" does not exist': (
        StoreRefused,
        "the database or the user does not exist; create it, or correct the URL",
    ),
    "root certificate file": (
        StoreRefused,
        "there is no certificate to know the server by; name its file in the URL with sslrootcert=…",
    ),
    "session is read-only": _KINDS[_READ_ONLY],
    "server is in hot standby mode": _KINDS[_READ_ONLY],
    "too many clients": _KINDS["53300"],
    "too many connections": _KINDS["53300"],
}
"""A connection that was refused has no code, only words: patterns of them."""


def translate(error: Exception, shown: str = "") -> ReprieveError:
    """Return an error of ours for an error of PostgreSQL's; `shown` is the URL of the server, masked."""
    if isinstance(error, ReprieveError):
        return error
    translated = _of_kind(error, shown)
    translated.__cause__ = error
    return translated


def is_final(error: psycopg.Error) -> bool:
    """Whether a connection always says the same: it leads to a replica, or knows none of our statements any more."""
    return error.sqlstate in (_READ_ONLY, _UNSUPPORTED, _UNKNOWN_NAME)


def _code_of(error: Exception) -> str:
    code = getattr(error, "sqlstate", None) or ""
    # A replica has this code for a transaction that is to write, which it refuses as a setting.
    if code == _UNSUPPORTED and isinstance(error, psycopg.Error) and error.diag.source_function == _CHECK:
        return _READ_ONLY
    return code


def _of_kind(error: Exception, shown: str) -> StoreError:
    said = " ".join(str(error).split())
    code = _code_of(error)
    for length in (5, 2):
        if code[:length] in _KINDS:
            kind, advice = _KINDS[code[:length]]
            return kind(f"{advice} ({said})")
    if isinstance(error, psycopg.OperationalError) and not code:
        for words, (kind, advice) in _REFUSALS.items():
            if re.search(words, said):
                return kind(f"{advice} ({said})")
        return StoreUnreachable(unreachable(shown, said))
    if isinstance(error, psycopg.OperationalError):
        return StoreUnreachable(f"the server went away; repeat the call ({said})")
    if isinstance(error, msgspec.MsgspecError):
        return StoreCorrupt(f"a record of the store cannot be read; restore the database from a backup ({said})")
    return StoreError(f"PostgreSQL failed: {type(error).__name__}: {said}")
