"""Care for a store from outside: looking whether it is well, and bringing its layout up to date.

Nothing here opens a store for jobs. Looking changes nothing, whatever state the store is in.
"""

from collections.abc import Callable, Iterator
from typing import Literal, Protocol, TypeAlias

from reprieve.clock import now as local_now
from reprieve.core.record import Record

SAMPLES = 5
"""Times that a server is asked for its time: the answer that took the least time is the most exact."""

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
        """Return the layout. Raises a StoreError for what is damaged, or of somebody else."""
        ...

    def migrate(self) -> Layout:
        """Bring the layout up to date, and answer it; make the store if it is missing."""
        ...

    def migrations(self) -> list[Migration]:
        """Return every step of the layout, in order."""
        ...


def measure_skew(ask: Callable[[], float], local: Callable[[], float] = local_now) -> float:
    """Return by how many milliseconds the local clock is ahead of a server's, which `ask` returns.

    The server reads its clock at some moment between question and answer; the middle is the best guess.
    """
    found = []
    for _ in range(SAMPLES):
        asked = local()
        server = ask()
        answered = local()
        found.append((answered - asked, (asked + answered) / 2 - server))
    return min(found)[1]


def local_clock(now: int) -> Callable[[], float]:
    """Return a clock that shows `now` at this moment, and goes on from there."""
    ahead = now - local_now()
    return lambda: local_now() + ahead
