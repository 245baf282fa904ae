"""The cursor of `entries_since`: the number of the last change that a reader has seen, and the stamp of that change.

The changes of all entries have numbers from one counter. Each has a random stamp too: a store that was restored from a
backup gives a number again, with another stamp, and its readers notice.
"""

from typing import Final, NamedTuple

from reprieve.stores.protocol import Entry

MAX_CHANGES_KEPT: Final = 10_000
"""Changes that a store remembers; a reader that is further behind reads all entries."""

MAX_NUMBER: Final = (1 << 63) - 1
"""The largest number that a column holds."""

MAX_STAMP: Final = (1 << 64) - 1
"""Stamps have eight bytes."""


LAST_CHARACTER: Final = "\U0010ffff"
"""Greater than any other in the order of bytes: keys with a prefix are at most the prefix with it."""


class EntryCursor(NamedTuple):
    """A change of an entry, by its number and its stamp."""

    number: int
    stamp: int

    def __str__(self) -> str:
        """Return it as `parse_cursor` reads it."""
        return f"{self.number}.{self.stamp:x}"


BEGINNING: Final = EntryCursor(0, 0)
"""Before the first change."""


def has_expired(entry: Entry, now: int) -> bool:
    """Whether an entry counts as gone."""
    return entry.expires_at is not None and entry.expires_at <= now


def parse_cursor(text: str) -> EntryCursor:
    """Return the cursor of a text; the beginning for a text that is none, so that its reader gets all entries."""
    number, _, stamp = text.partition(".")
    try:
        return EntryCursor(max(0, int(number)) & MAX_NUMBER, int(stamp, 16) & MAX_STAMP)
    except ValueError:
        return BEGINNING
