"""Care for a store from outside: looking whether it is well, and bringing its layout up to date.

Nothing here opens a store for jobs. Looking changes nothing, whatever state the store is in.
"""

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias

from reprieve.core.record import Record

Level: TypeAlias = Literal["ok", "warn", "bad"]
"""Nothing to do; something to do soon; jobs cannot be kept safely until it is mended."""


class Finding(Record, omit_defaults=False):
    """One thing that was looked at, what was seen, and what to do about it."""

    name: str
    level: Level
    seen: str
    fix: str = ""


class Layout(Record, omit_defaults=False):
    """Which layout a store has, 0 if none yet, and which this release knows."""

    stored: int
    known: int


class Migration(Record, omit_defaults=False):
    """One step of the layout, as a script that can be run by hand."""

    name: str
    sql: str


class Care(Protocol):
    """What can be done for a store without opening it."""

    def examine(self, now: int) -> Iterator[Finding]:
        """Look at everything that can go wrong, one thing after the other; a sick store raises nothing."""
        ...

    def layout(self) -> Layout:
        """Answer the layout. Raises a StoreError for what is damaged, or of somebody else."""
        ...

    def migrate(self) -> Layout:
        """Bring the layout up to date, and answer it; make the store if it is missing."""
        ...

    def migrations(self) -> list[Migration]:
        """Answer every step of the layout, in order."""
        ...
