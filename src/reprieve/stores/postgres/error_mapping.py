"""Error mapping: the errors of PostgreSQL as errors of ours, which say what to do."""

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
"""The function of the server that refuses the value of a setting; unlike the message, its name is not translated."""

_BY_SQLSTATE: dict[str, tuple[type[StoreError], str]] = {
    _READ_ONLY: (StoreReadOnly, "the database is read-only; name the primary server, not a replica"),
    "25P03": (StoreLocked, "the server ended a transaction that was idle for too long; repeat the call"),
    "28": (StoreRefused, "the server refuses the user or the password; check the URL"),
    "3D000": (StoreRefused, "the database does not exist; create it, or name another one in the URL"),
    "3F000": (ForeignStore, "the schema does not exist; run reprieve migrate up"),
    "40": (StoreLocked, "another transaction changed the same rows; repeat the call"),
    "42501": (StoreRefused, "the user may not do this; grant it the rights to the schema"),
    "42883": (ForeignStore, "the schema lacks a function of this release; run reprieve migrate up"),
    "42P01": (ForeignStore, "the schema lacks a table of this release; run reprieve migrate up"),
    "53100": (StoreFull, "the server's disk is full; make room, nothing of this call was stored"),
    "53300": (StoreLocked, "the server has no connection left; raise max_connections, or use fewer processes"),
    "53": (StoreFull, "the server has too little of a resource; nothing of this call was stored"),
    "55P03": (StoreLocked, "another transaction holds the claim lock for too long; end it"),
    "57014": (StoreLocked, "the server cancelled the statement; repeat the call"),
    "XX001": (StoreCorrupt, "the database is damaged; restore it from a backup"),
    "XX002": (StoreCorrupt, "an index of the database is damaged; reindex it, and find out what damaged it"),
}

_BY_MESSAGE: dict[str, tuple[type[StoreError], str]] = {
    "password authentication failed": _BY_SQLSTATE["28"],
    "no password supplied": (StoreRefused, "the server asks for a password; put it into the URL, or into PGPASSWORD"),
    "no pg_hba.conf entry": (StoreRefused, "the server refuses connections from this host; allow it in pg_hba.conf"),
    r'(database|role|user) ".*" does not exist': (
        StoreRefused,
        "the database or the user does not exist; create it, or correct the URL",
    ),
    "root certificate file": (
        StoreRefused,
        "there is no root certificate to verify the server; name its file in the URL with sslrootcert=…",
    ),
    "session is read-only": _BY_SQLSTATE[_READ_ONLY],
    "server is in hot standby mode": _BY_SQLSTATE[_READ_ONLY],
    "too many clients": _BY_SQLSTATE["53300"],
    "too many connections": _BY_SQLSTATE["53300"],
}
"""A refused connection has no SQLSTATE, only a message: patterns of messages."""


def translate(error: Exception, shown: str = "") -> ReprieveError:
    """Return the ReprieveError for an error of PostgreSQL; `shown` is the URL of the server, masked."""
    if isinstance(error, ReprieveError):
        return error
    translated = _store_error(error, shown)
    translated.__cause__ = error
    return translated


def is_final(error: psycopg.Error) -> bool:
    """Whether a connection always fails so: it leads to a replica, or has lost its prepared statements."""
    return error.sqlstate in (_READ_ONLY, _UNSUPPORTED, _UNKNOWN_NAME)


def _sqlstate(error: Exception) -> str:
    code = getattr(error, "sqlstate", None) or ""
    # A replica refuses a transaction that writes as a setting that it does not support.
    if code == _UNSUPPORTED and isinstance(error, psycopg.Error) and error.diag.source_function == _CHECK:
        return _READ_ONLY
    return code


def _store_error(error: Exception, shown: str) -> StoreError:
    text = " ".join(str(error).split())
    code = _sqlstate(error)
    for length in (5, 2):
        if code[:length] in _BY_SQLSTATE:
            kind, advice = _BY_SQLSTATE[code[:length]]
            return kind(f"{advice} ({text})")
    if isinstance(error, psycopg.OperationalError) and not code:
        for pattern, (kind, advice) in _BY_MESSAGE.items():
            if re.search(pattern, text):
                return kind(f"{advice} ({text})")
        return StoreUnreachable(unreachable(shown, text))
    if isinstance(error, psycopg.OperationalError):
        return StoreUnreachable(f"the server went away; repeat the call ({text})")
    if isinstance(error, msgspec.MsgspecError):
        return StoreCorrupt(f"a record of the store cannot be read; restore the database from a backup ({text})")
    return StoreError(f"PostgreSQL failed: {type(error).__name__}: {text}")
