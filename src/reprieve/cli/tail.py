"""`reprieve jobs tail`: follow the stream of events, and successes, most of which are not stored as events."""

import asyncio
import contextlib
import sys
from typing import NamedTuple, TypeAlias, assert_never

import click
import msgspec

from reprieve.admin.resolve import short
from reprieve.cli import output
from reprieve.cli.table import cut
from reprieve.core.duration import milliseconds
from reprieve.core.events import Event
from reprieve.core.job import Job
from reprieve.core.move import (
    Cancel,
    Dead,
    Enqueue,
    ManualRetry,
    Move,
    Park,
    Retry,
    Return,
    Revive,
    Snooze,
    Start,
    Succeed,
)
from reprieve.core.status import Status
from reprieve.stores.protocol import EventQuery, Filter, Range, Store
from reprieve.views.moments import clock_time, timestamp

POLL_SECONDS = 1.0
"""The store is read this often even without a notification."""

OVERLAP_MS = 10_000
"""The time that is read again: a success is stored a little after it happened, and clocks differ."""

MAX_SUCCESSES = 1_000
"""Successes that one poll prints; the next poll prints the rest."""

STYLES = {"Retry": "yellow", "Park": "magenta", "Dead": "red", "Succeed": "green", "ManualRetry": "cyan"}

NAMES: dict[type[Move | Enqueue], str] = {
    Enqueue: "job enqueued",
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
"""The names of moves, as in the worker's log."""

MAX_TASK_CHARS, MAX_TENANT_CHARS = 28, 12
"""Characters of a task and of a tenant that a terminal shows."""

SeenEvent: TypeAlias = tuple[int | None, Event]
"""An event and its position in the stream; None for a success."""


class Watch(NamedTuple):
    """Which jobs to follow, from when on, and for how long."""

    job_id: str = ""
    task: str = ""
    tenant: str | None = None
    statuses: frozenset[Status] = frozenset()
    """Only moves that lead to one of these."""
    position: int | None = None
    """Begin after this position in the stream."""
    ago: float | None = None
    """Begin this many seconds ago."""
    length: float | None = None
    """Stop after this many seconds."""

    def takes(self, event: Event) -> bool:
        """Return whether an event is to be shown."""
        return (
            self.job_id in ("", event.job_id)
            and self.task in ("", event.task)
            and self.tenant in (None, event.tenant)
            and (not self.statuses or status_after(event) in self.statuses)
        )

    def describe(self) -> str:
        """Return a description of the jobs that are followed."""
        parts = [f"job {self.job_id}"] if self.job_id else []
        parts += [f"task {self.task}"] if self.task else []
        parts += [f"tenant {self.tenant!r}"] if self.tenant is not None else []
        parts += [f"status {', '.join(sorted(self.statuses))}"] if self.statuses else []
        return "; ".join(parts) or "all jobs"


async def follow(store: Store, watch: Watch, *, as_json: bool) -> None:
    """Print moves, one per line, until interrupted or for the length of the watch."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(watch.length):
            await store.clock.tune()
            begin = store.clock.now() - (0 if watch.ago is None else milliseconds(watch.ago))
            successes = Successes(store, begin, watch)
            earliest = 0 if watch.ago is None else begin
            position = await _position_at(store, begin) if watch.position is None else watch.position
            while True:
                before = position
                page = await store.read_events(EventQuery(after=before, only="jobs"))
                position = page.position
                if page.missed and before:
                    output.print_note("events were deleted before they could be shown here")
                told = ((seq, event) for seq, event in page.events if isinstance(event, Event))
                entries: list[SeenEvent] = [(seq, event) for seq, event in told if event.at >= earliest]
                # Sort the events of one poll; an event without a position in the stream is a success.
                entries = sorted([*entries, *await successes.new()], key=lambda entry: entry[1].at)
                for seq, event in entries:
                    if watch.takes(event):
                        _print(seq, event, as_json=as_json)
                sys.stdout.flush()
                if position == before and not successes.has_more:
                    await store.wait((), POLL_SECONDS)


class Successes:
    """Finds the jobs that have succeeded since a given time.

    Most successes are not stored as events, which would cost every job a write: each poll reads the succeeded jobs that
    ended since the last one. Jobs that are pruned between two polls are missed. Jobs that tell all are left out.
    """

    def __init__(self, store: Store, begin: int, watch: Watch) -> None:
        """Begin at a time, with the jobs of the watch."""
        self._store = store
        self._watch = watch
        self._began = self._newest = self._since = begin
        self._cursor = ""
        self._seen: dict[str, int] = {}
        """Jobs that were found and when they ended, as long as they may be found again."""

    async def new(self) -> list[SeenEvent]:
        """Return new successes, as events without a position in the stream."""
        watch = self._watch
        if watch.statuses and "succeeded" not in watch.statuses:
            return []
        if not self._cursor:
            self._since = max(self._began, self._newest - OVERLAP_MS)
        wanted = Filter(
            ids=(watch.job_id,) if watch.job_id else None,
            tasks=(watch.task,) if watch.task else (),
            tenants=() if watch.tenant is None else (watch.tenant,),
            statuses=frozenset({"succeeded"}),
            ended=Range(since=self._since),
        )
        found: list[SeenEvent] = []
        while len(found) < MAX_SUCCESSES:
            page = await self._store.find(wanted, self._store.clock.now(), self._cursor)
            for job in page.jobs:
                at = job.finished_at or self._since
                if job.id not in self._seen and not job.tells_all:
                    self._seen[job.id] = at
                    found.append((None, _success(job, at)))
            self._cursor = page.cursor
            if not self._cursor:
                # All pages were read, so the next poll may begin later.
                self._newest = max([self._newest, *self._seen.values()])
                self._seen = {name: at for name, at in self._seen.items() if at >= self._newest - OVERLAP_MS}
                break
        return found

    @property
    def has_more(self) -> bool:
        """Whether the last poll did not return everything; the next one continues there."""
        return bool(self._cursor)


def _success(job: Job, at: int) -> Event:
    return Event(
        job_id=job.id,
        at=at,
        attempt=job.attempt,
        version=job.version,
        move=Succeed(),
        queue=job.queue,
        tenant=job.tenant,
        task=job.task,
    )


async def _position_at(store: Store, at: int) -> int:
    """Return a position after which all events are that happened from this time on: the newest, if none is."""
    page = await store.read_events(EventQuery(newest_first=True, limit=1))
    position = page.newest
    while page.events and page.events[-1][1].at >= at - OVERLAP_MS:
        page = await store.read_events(EventQuery(newest_first=True, before=position + 1))
        position = page.position - 1
    return position


def _print(seq: int | None, event: Event, *, as_json: bool) -> None:
    name = name_of(event)
    if as_json:
        facts = {"seq": seq, "event": name, "task": event.task, "tenant": event.tenant}
        click.echo(output.json_line(facts | msgspec.to_builtins(event)))
        return
    at, job, task, tenant = timestamp(event.at), event.job_id, event.task or "-", event.tenant or "-"
    if output.is_terminal():
        at, job = clock_time(event.at, event.at), short(job)
        task = cut(task, MAX_TASK_CHARS, "start").ljust(MAX_TASK_CHARS)
        tenant = cut(tenant, MAX_TENANT_CHARS, "middle").ljust(MAX_TENANT_CHARS)
    style = STYLES.get(type(event.move).__name__, "")
    output.print_line((at, "dim"), f"  {job}  {task}  {tenant}  ", (f"{name:<15}", style), f"  {_words(event)}")


def name_of(event: Event) -> str:
    """Return the name of an event, as in the worker's log."""
    move = event.move
    return "job recovered" if isinstance(move, Return) and move.crashed else NAMES[type(move)]


def status_after(event: Event) -> Status:
    """Return the status of a job right after an event."""
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
        case Return() | ManualRetry() | Revive() | Enqueue():
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
