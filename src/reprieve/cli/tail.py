"""Following what happens to jobs: the stream of events, and successes, which are not stored as events."""

import asyncio
import contextlib
import sys
from typing import NamedTuple, TypeAlias, assert_never

import click
import msgspec

from reprieve.admin.resolve import short
from reprieve.cli import output
from reprieve.cli.subjects import Subject, Subjects
from reprieve.cli.table import cut
from reprieve.core.duration import milliseconds
from reprieve.core.events import Event
from reprieve.core.move import Cancel, Dead, ManualRetry, Move, Park, Retry, Return, Revive, Snooze, Start, Succeed
from reprieve.core.status import Status
from reprieve.stores.protocol import Filter, Store
from reprieve.views.moments import clock_time, timestamp

LOOK_EVERY_SECONDS = 1.0
"""Seconds after which it looks by itself, whether or not the store says that something happened."""

OVERLAP_MS = 10_000
"""Milliseconds that are looked at again: a success is stored a little after it happened, and clocks differ."""

MAX_SUCCESSES = 1_000
"""Successes of one look that are printed; the rest come with the next ones."""

STYLES = {"Retry": "yellow", "Park": "magenta", "Dead": "red", "Succeed": "green", "ManualRetry": "cyan"}

NAMES: dict[type[Move], str] = {
    Start: "job started",
    Succeed: "job succeeded",
    Retry: "retry scheduled",
    Park: "job parked",
    Dead: "job died",
    Snooze: "job snoozed",
    Return: "job returned",
    Cancel: "job cancelled",
    ManualRetry: "retry requested",
    Revive: "job revived",
}
"""What happened, named as in the log of a worker."""

MAX_TASK, MAX_TENANT = 28, 12
"""Characters of a task and a tenant that a terminal shows."""

Entry: TypeAlias = tuple[int | None, Event]
"""An event and its place in the stream; a success has none."""


class Watch(NamedTuple):
    """What is to be followed: which jobs, from when on, and for how long."""

    job_id: str = ""
    task: str = ""
    tenant: str | None = None
    statuses: frozenset[Status] = frozenset()
    """Only moves that bring a job into one of these."""
    place: int | None = None
    """Begin after this place in the stream."""
    ago: float | None = None
    """Begin with what happened so many seconds ago."""
    length: float | None = None
    """Stop after so many seconds."""

    def takes(self, event: Event, subject: Subject) -> bool:
        """Return whether an event is to be shown."""
        return (
            self.job_id in ("", event.job_id)
            and self.task in ("", subject.task)
            and self.tenant in (None, subject.tenant)
            and (not self.statuses or status_after(event) in self.statuses)
        )

    def describe(self) -> str:
        """Return what is followed, in words."""
        parts = [f"job {self.job_id}"] if self.job_id else []
        parts += [f"task {self.task}"] if self.task else []
        parts += [f"tenant {self.tenant!r}"] if self.tenant is not None else []
        parts += [f"status {', '.join(sorted(self.statuses))}"] if self.statuses else []
        return "; ".join(parts) or "all jobs"


async def follow(store: Store, watch: Watch, *, as_json: bool) -> None:
    """Print what happens, one move a line, until interrupted or for the length of the watch."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(watch.length):
            await store.clock.tune()
            begin = store.clock.now() - (0 if watch.ago is None else milliseconds(watch.ago))
            subjects = Subjects(store)
            successes = Successes(store, subjects, begin, watch)
            # What happened at an instant is found by reading the stream from its beginning, as its end is.
            place = watch.place if watch.place is not None else 0 if watch.ago is not None else await _end_of(store)
            earliest = 0 if watch.ago is None else begin
            while True:
                before = place
                entries, place = await _new_events(store, before, earliest)
                # Those of one look are put in order; an event without a place in the stream is a success.
                entries = sorted([*entries, *await successes.new()], key=lambda entry: entry[1].at)
                known = await subjects.of(event.job_id for _, event in entries)
                for seq, event in entries:
                    if watch.takes(event, known[event.job_id]):
                        _print(seq, event, known[event.job_id], as_json=as_json)
                sys.stdout.flush()
                if place == before and not successes.has_more:
                    await store.wait((), LOOK_EVERY_SECONDS)


class Successes:
    """Finds the jobs that have succeeded since an instant.

    A success is no stored event: that would cost every job a write. So the succeeded jobs that a store keeps are looked
    for, those that ended since the last look. What is pruned between two looks is not seen.
    """

    def __init__(self, store: Store, subjects: Subjects, begin: int, watch: Watch) -> None:
        """Begin at an instant, with the jobs of the watch; their subjects are noted."""
        self._store = store
        self._subjects = subjects
        self._watch = watch
        self._began = self._newest = self._since = begin
        self._cursor = ""
        self._seen: dict[str, int] = {}
        """The jobs that were found, and when they ended, while they may be found again."""

    async def new(self) -> list[Entry]:
        """Return those that were not returned before, as events without a place in the stream."""
        watch = self._watch
        if watch.statuses and "succeeded" not in watch.statuses:
            return []
        if not self._cursor:
            self._since = max(self._began, self._newest - OVERLAP_MS)
        wanted = Filter(
            ids=(watch.job_id,) if watch.job_id else None,
            task=watch.task,
            tenant=watch.tenant,
            statuses=frozenset({"succeeded"}),
            finished_since=self._since,
        )
        found: list[Entry] = []
        while len(found) < MAX_SUCCESSES:
            page = await self._store.find(wanted, self._store.clock.now(), self._cursor)
            for job in page.jobs:
                at = job.finished_at or self._since
                if job.id not in self._seen:
                    self._seen[job.id] = at
                    self._subjects.note(job)
                    event = Event(job_id=job.id, at=at, attempt=job.attempt, version=job.version, move=Succeed())
                    found.append((None, event))
            self._cursor = page.cursor
            if not self._cursor:
                # All was seen, so the next look may begin later.
                self._newest = max([self._newest, *self._seen.values()])
                self._seen = {name: at for name, at in self._seen.items() if at >= self._newest - OVERLAP_MS}
                break
        return found

    @property
    def has_more(self) -> bool:
        """Whether there is more than the last look returned; the next one goes on there."""
        return bool(self._cursor)


async def _end_of(store: Store) -> int:
    """Return the place of the last event so far."""
    place = 0
    while events := await store.events(after=place):
        place = events[-1][0]
    return place


async def _new_events(store: Store, place: int, earliest: int) -> tuple[list[Entry], int]:
    """Return the events after a place that happened at an instant or later, and the place of the last one."""
    events = await store.events(after=place)
    found: list[Entry] = [(seq, event) for seq, event in events if event.at >= earliest]
    return found, events[-1][0] if events else place


def _print(seq: int | None, event: Event, subject: Subject, *, as_json: bool) -> None:
    name = name_of(event)
    if as_json:
        facts = {"seq": seq, "event": name, "task": subject.task, "tenant": subject.tenant}
        click.echo(msgspec.json.encode(facts | msgspec.to_builtins(event)).decode())
        return
    at, job, task, tenant = timestamp(event.at), event.job_id, subject.task or "-", subject.tenant or "-"
    if output.is_terminal():
        at, job = clock_time(event.at, event.at), short(job)
        task = cut(task, MAX_TASK, "start").ljust(MAX_TASK)
        tenant = cut(tenant, MAX_TENANT, "middle").ljust(MAX_TENANT)
    style = STYLES.get(type(event.move).__name__, "")
    output.print_line((at, "dim"), f"  {job}  {task}  {tenant}  ", (f"{name:<15}", style), f"  {_words(event)}")


def name_of(event: Event) -> str:
    """Return what happened, in the words of the log."""
    move = event.move
    return "job recovered" if isinstance(move, Return) and move.crashed else NAMES[type(move)]


def status_after(event: Event) -> Status:
    """Return the status that a job has right after an event."""
    match event.move:
        case Start():
            return "running"
        case Succeed():
            return "succeeded"
        case Retry():
            return "retrying"
        case Park():
            return "parked"
        case Dead():
            return "dead"
        case Snooze():
            return "scheduled"
        case Cancel():
            return "cancelled"
        case ManualRetry(due_at=due_at) if due_at > event.at:
            return "retrying"
        case Return() | ManualRetry() | Revive():
            return "ready"
        case _:
            assert_never(event.move)


def _words(event: Event) -> str:
    match event.move:
        case Start(session=session):
            return f"attempt {event.attempt} in {session}"
        case Retry(cause=cause, due_at=due_at):
            return f"in {(due_at - event.at) / 1_000:g} s: {cause.reason}"
        case Park(gate=gate, cause=cause):
            return f"waits for {gate}: {cause.reason}"
        case Dead(death=death, cause=cause):
            return f"{death}: {cause.reason}"
        case ManualRetry(by=by, reason=reason) | Cancel(by=by, reason=reason):
            return f"{by}: {reason}" if by else reason
        case _:
            return f"attempt {event.attempt}"
