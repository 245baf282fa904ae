"""Which releases can use a store: every store records it, and every release checks it before it touches anything.

A migration may add what older releases ignore: then they keep working beside newer ones. A migration that they could
not work with raises the oldest schema version that the store allows, and they are refused with one line.
"""

from reprieve.core.record import Record
from reprieve.errors import NewerSchema
from reprieve.version import __version__


class Compatibility(Record, omit_defaults=False):
    """Which releases can use a store, as the release that made or migrated it last has recorded."""

    oldest_schema: int
    """The lowest schema version whose releases can read and write the store."""
    oldest_release: str
    """The first release that knows that schema version: for people."""
    migrated_by: str = __version__
    """The release that made or migrated the store."""


def require_usable(stored: Compatibility, known: int) -> None:
    """Raise `NewerSchema` if a release that knows this schema version cannot use the store."""
    if stored.oldest_schema > known:
        raise refusal(stored.oldest_release, stored.migrated_by)


def refusal(oldest_release: str, migrated_by: str) -> NewerSchema:
    """Return the error that says why this release cannot use a store."""
    message = (
        f"this store was migrated by Reprieve {migrated_by}, which releases from {oldest_release} on can use, "
        f"and this is {__version__}; upgrade Reprieve here"
    )
    return NewerSchema(message)
