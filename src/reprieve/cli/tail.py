"""Following the stream of events."""

import asyncio
import contextlib
import sys

import click
import msgspec

from reprieve.cli import output
from reprieve.cli.summary import moment
from reprieve.core.events import Event
from reprieve.core.move import Cancel, Dead, ManualRetry, Park, Retry, Start
from reprieve.stores.protocol import Store

LISTEN = 5.0
"""Seconds after which it looks by itself."""

STYLES = {"Retry": "yellow", "Park": "magenta", "Dead": "red", "Succeed": "green", "ManualRetry": "cyan"}


async def follow(store: Store, *, job_id: str, since: int | None, length: float | None, as_json: bool) -> None:
    """Print events as they happen, one a line, until interrupted or for so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(length):
            place = await _end_of(store) if since is None else since
            while True:
                place = await _print_new(store, place, job_id, as_json=as_json)
                await store.wait((), LISTEN)


async def _end_of(store: Store) -> int:
    """Answer the place of the last event so far."""
    place = 0
    while events := await store.events(after=place):
        place = events[-1][0]
    return place


async def _print_new(store: Store, place: int, job_id: str, *, as_json: bool) -> int:
    while events := await store.events(after=place):
        for seq, event in events:
            place = seq
            if not job_id or event.job_id == job_id:
                _print(seq, event, as_json=as_json)
        sys.stdout.flush()
    return place


def _print(seq: int, event: Event, *, as_json: bool) -> None:
    name = type(event.move).__name__
    if as_json:
        document = {"seq": seq, **msgspec.to_builtins(event)}
        click.echo(msgspec.json.encode(document).decode())
        return
    output.print_line(
        (moment(event.at), "dim"), f"  {event.job_id}  ", (f"{name:<11}", STYLES.get(name, "")), f" {_words(event)}"
    )


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
