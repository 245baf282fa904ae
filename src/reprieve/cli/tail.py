"""Following what happens to jobs: the stream of events, and successes, which are not stored as events."""

import asyncio
import contextlib
import sys

import click
import msgspec

from reprieve.admin.resolve import short
from reprieve.cli import output
from reprieve.cli.moments import clock_time, timestamp
from reprieve.core.events import Event
from reprieve.core.move import Cancel, Dead, ManualRetry, Park, Retry, Start, Succeed
from reprieve.stores.protocol import Filter, Store

LOOK_EVERY_SECONDS = 1.0
"""Seconds after which it looks by itself, whether or not the store says that something happened."""

OVERLAP_MS = 10_000
"""Milliseconds that are looked at again: a success is stored a little after it happened, and clocks differ."""

MAX_SUCCESSES = 1_000
"""Successes of one look that are printed; the rest come with the next ones."""

STYLES = {"Retry": "yellow", "Park": "magenta", "Dead": "red", "Succeed": "green", "ManualRetry": "cyan"}


async def follow(store: Store, *, job_id: str, since: int | None, length: float | None, as_json: bool) -> None:
    """Print what happens, one move a line, until interrupted or for so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(length):
            await store.clock.tune()
            successes = Successes(store, job_id)
            place = await _end_of(store) if since is None else since
            while True:
                before = place
                entries, place = await _new_events(store, before, job_id)
                # Those of one look are put in order; an event without a place in the stream is a success.
                for seq, event in sorted([*entries, *await successes.new()], key=lambda entry: entry[1].at):
                    _print(seq, event, as_json=as_json)
                sys.stdout.flush()
                if place == before and not successes.has_more:
                    await store.wait((), LOOK_EVERY_SECONDS)


class Successes:
    """Finds the jobs that have succeeded since it was made.

    A success is no stored event: that would cost every job a write. So the succeeded jobs that a store keeps are looked
    for, those that ended since the last look. What is pruned between two looks is not seen.
    """

    def __init__(self, store: Store, job_id: str = "") -> None:
        """Begin now, with one job or with all."""
        self._store = store
        self._job_id = job_id
        self.has_more = False
        """Whether there was more than one look returns."""
        self._began = self._newest = store.clock.now()
        self._seen: dict[str, int] = {}
        """The jobs that were found, and when they ended, while they may be found again."""

    async def new(self) -> list[tuple[int | None, Event]]:
        """Return those that were not returned before, as events without a place in the stream."""
        since = max(self._began, self._newest - OVERLAP_MS)
        wanted = Filter(
            ids=(self._job_id,) if self._job_id else None, statuses=frozenset({"succeeded"}), finished_since=since
        )
        found: list[tuple[int | None, Event]] = []
        cursor = ""
        while len(found) < MAX_SUCCESSES:
            page = await self._store.find(wanted, self._store.clock.now(), cursor)
            for job in page.jobs:
                at = job.finished_at or since
                if job.id not in self._seen:
                    self._seen[job.id] = at
                    event = Event(job_id=job.id, at=at, attempt=job.attempt, version=job.version, move=Succeed())
                    found.append((None, event))
            cursor = page.cursor
            if not cursor:
                break
        self.has_more = bool(cursor)
        if not self.has_more:
            # All was seen, so the next look may begin later.
            self._newest = max([self._newest, *(event.at for _, event in found)])
        self._seen = {name: at for name, at in self._seen.items() if at >= since}
        return found


async def _end_of(store: Store) -> int:
    """Return the place of the last event so far."""
    place = 0
    while events := await store.events(after=place):
        place = events[-1][0]
    return place


async def _new_events(store: Store, place: int, job_id: str) -> tuple[list[tuple[int | None, Event]], int]:
    """Return the events after a place, and the place of the last one."""
    found: list[tuple[int | None, Event]] = []
    events = await store.events(after=place)
    for seq, event in events:
        place = seq
        if not job_id or event.job_id == job_id:
            found.append((seq, event))
    return found, place


def _print(seq: int | None, event: Event, *, as_json: bool) -> None:
    name = type(event.move).__name__
    if as_json:
        document = {"seq": seq, **msgspec.to_builtins(event)}
        click.echo(msgspec.json.encode(document).decode())
        return
    at, job = timestamp(event.at), event.job_id
    if output.is_terminal():
        at, job = clock_time(event.at, event.at), short(job)
    output.print_line((at, "dim"), f"  {job}  ", (f"{name:<11}", STYLES.get(name, "")), f" {_words(event)}")


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
