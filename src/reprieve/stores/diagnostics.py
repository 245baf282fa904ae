"""Checking a store from outside (`reprieve doctor`) and migrating its schema (`reprieve migrate`).

Nothing here opens a store for jobs. A check changes nothing, whatever state the store is in.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Literal, Protocol, TypeAlias

from reprieve.clock import now as local_now
from reprieve.core.record import Record
from reprieve.errors import ReprieveError
from reprieve.stores.compatibility import Compatibility
from reprieve.stores.record import is_sound

CLOCK_SAMPLES = 5
"""Times that a server is asked for its time: the fastest response is the most exact."""

MAX_RECORDS_CHECKED = 100_000
"""Records of jobs that `reprieve doctor` reads: about a second."""

MAX_CLOCK_SKEW_MS = 60_000
"""How far the newest event may be ahead of the local clock: clocks of machines differ a little."""

Level: TypeAlias = Literal["ok", "warn", "bad"]
"""Nothing to do; something to do soon; jobs are not safe until it is fixed."""


class Finding(Record, omit_defaults=False):
    """The result of one check: what was seen, and what to do about it."""

    name: str
    level: Level
    seen: str
    fix: str = ""


class SchemaVersion(Record, omit_defaults=False):
    """The schema version that a store has, 0 if none yet, and the one that this release knows.

    A store that a newer release has migrated may have a larger one than this release knows, and be used all the same.
    """

    stored: int
    known: int
    compatibility: Compatibility | None = None
    """Which releases can use the store; None if there is none yet."""
    missing_functions: int = 0
    """Functions of this release that the database lacks, on stores that keep some there."""

    @property
    def is_current(self) -> bool:
        """Whether this release needs nothing more."""
        return self.stored >= self.known and not self.missing_functions


class Migration(Record, omit_defaults=False):
    """One step of the schema, as a script that can be run by hand."""

    name: str
    sql: str


class Diagnostics(Protocol):
    """What can be checked and migrated without opening a store for jobs."""

    def examine(self, now: int) -> Iterator[Finding]:
        """Run every check and yield its finding. A broken store is a finding; nothing is raised."""
        ...

    def schema_version(self) -> SchemaVersion:
        """Return the schema version. Raise a StoreError if the store is damaged or belongs to another program."""
        ...

    def migrate(self) -> SchemaVersion:
        """Bring the schema up to date, creating the store if it is missing; return its version."""
        ...

    def migrations(self) -> list[Migration]:
        """Return every step of the schema, in order."""
        ...


def schema_finding(version: SchemaVersion) -> Finding:
    """Return the finding about a schema that this release can read."""
    if version.stored == version.known:
        return Finding(name="schema", level="ok", seen=f"version {version.stored}, the newest")
    if version.stored > version.known and version.compatibility is not None:
        made_by = f"version {version.stored}, of Reprieve {version.compatibility.migrated_by}"
        seen = f"{made_by}; releases from {version.compatibility.oldest_release} on can use it, this one too"
        return Finding(name="schema", level="ok", seen=seen)
    seen = f"version {version.stored}, and this release knows {version.known}" if version.stored else "none yet"
    return Finding(name="schema", level="warn", seen=seen, fix="reprieve migrate up brings it up to date")


def error_finding(name: str, error: ReprieveError, fix: str = "") -> Finding:
    """Return the finding about an error; its message says what happened, and after a semicolon what to do."""
    seen, _, told = str(error).partition("; ")
    return Finding(name=name, level="bad", seen=seen, fix=told or fix)


def events_finding(newest_at: int | None, now: int) -> Finding:
    """Return the finding about the time of the newest event, None if there is none."""
    if newest_at is None or newest_at <= now + MAX_CLOCK_SKEW_MS:
        return Finding(name="events", level="ok", seen="none" if newest_at is None else "none from the future")
    seen = f"the newest is {(newest_at - now) // 1_000:,} s ahead of this clock"
    return Finding(name="events", level="warn", seen=seen, fix="set the clocks of all machines by NTP")


def sessions_finding(alive: int, dead: int, orphans: int) -> Finding:
    """Return the finding about sessions; orphans are the jobs that dead ones hold."""
    seen = f"{alive} alive, {dead} dead with {orphans} jobs"
    if not orphans:
        return Finding(name="sessions", level="ok", seen=seen)
    fix = "start a worker: it recovers the jobs of dead sessions"
    return Finding(name="sessions", level="warn", seen=seen, fix=fix)


def records_finding(records: Iterable[bytes]) -> Finding:
    """Return the finding about the packed records of jobs that have not succeeded; some of them, if there are many."""
    sound = [is_sound(data) for data in islice(records, MAX_RECORDS_CHECKED)]
    lost = sound.count(False)
    if not lost:
        return Finding(name="records", level="ok", seen=f"{len(sound):,} read")
    seen = f"{lost:,} of {len(sound):,} cannot be read"
    fix = "a worker ends their jobs as undecodable; reprieve jobs show --json ID prints the raw bytes of each"
    return Finding(name="records", level="warn", seen=seen, fix=fix)


def measure_skew(ask: Callable[[], float], local: Callable[[], float] = local_now) -> float:
    """Return by how many milliseconds the local clock is ahead of a server's, which `ask` returns.

    The server reads its clock at some moment between request and response; the middle is the best guess.
    """
    found = []
    for _ in range(CLOCK_SAMPLES):
        asked = local()
        server = ask()
        done = local()
        found.append((done - asked, (asked + done) / 2 - server))
    return min(found)[1]


def local_clock(now: int) -> Callable[[], float]:
    """Return a clock that shows `now` at the time of this call, and runs on from there."""
    ahead = now - local_now()
    return lambda: local_now() + ahead
