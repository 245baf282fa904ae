"""Groups of failures: what the failures with one fingerprint look like."""

from collections.abc import Sequence
from typing import Protocol

from reprieve.core.record import Record

MAX_FAILURE_BYTES = 16 * 1024
"""Largest traceback of a group of failures."""


class FailureGroup(Record):
    """What the failures with one fingerprint look like, kept once for all the jobs that failed so."""

    fingerprint: str
    template: str
    """The message of the failures, with its variable parts masked."""
    type: str = ""
    """The exception's class with its module."""
    traceback: str = ""
    """The full traceback of the first failure."""
    first_seen_at: int
    last_seen_at: int


class FailureStore(Protocol):
    """Keeps and reads groups of failures."""

    async def describe_failures(self, groups: Sequence[FailureGroup]) -> None:
        """Keep what groups of failures look like. Of a group that is kept already only `last_seen_at` may grow."""
        ...

    async def failure_groups(self, fingerprints: Sequence[str]) -> list[FailureGroup]:
        """Return the groups of failures with these fingerprints that are kept, in any order."""
        ...
