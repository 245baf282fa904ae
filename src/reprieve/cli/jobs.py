"""`reprieve jobs`: look at jobs, retry them, cancel them, and watch what happens to them."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reprieve.cli import output
from reprieve.cli.group import Group
from reprieve.cli.kinds import DURATION
from reprieve.cli.store import settings_for, store_option

if TYPE_CHECKING:  # what a command needs is imported when it runs
    from reprieve.stores.protocol import Store

T = TypeVar("T")


@click.group(cls=Group)
def jobs() -> None:
    """Look at jobs, retry them, cancel them, and watch what happens to them."""


@jobs.command("list")
@click.option("--status", "statuses", multiple=True, help="ready, retrying, parked, dead …, or failed, queued.")
@click.option("--queue", default="", help="Only of this queue.")
@click.option("--tenant", help="Only of this tenant.")
@click.option("--task", default="", help="Only of this task.")
@click.option("--dependency", help="Only those that call this.")
@click.option("--key", default="", help="Only the one with this key.")
@click.option("--code", default="", help="Only those that died with this error code.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--cursor", default="", help="Go on where the last page ended.")
@store_option
@output.json_option
def list_jobs(  # noqa: PLR0913 - one parameter an option
    *,
    statuses: tuple[str, ...],
    queue: str,
    tenant: str | None,
    task: str,
    dependency: str | None,
    key: str,
    code: str,
    limit: int,
    cursor: str,
    url: str | None,
    as_json: bool,
) -> None:
    """List jobs, as they are now."""
    from reprieve.cli.summary import COLUMNS, row_of
    from reprieve.core.status import matching
    from reprieve.stores.protocol import Filter
    from reprieve.views.jobs import view

    wanted = Filter(
        queue=queue,
        tenant=tenant,
        task=task,
        dependency=dependency,
        key=key,
        code=code,
        statuses=frozenset().union(*map(matching, statuses)),
    )

    async def look(store: "Store") -> tuple[list[Any], str, int]:
        await store.clock.tune()
        now = store.clock.now()
        found: list[Any] = []
        place = cursor
        while len(found) < limit:
            page = await store.find(wanted, now, place, min(100, limit - len(found)))
            found += page.jobs
            place = page.cursor
            if not place:
                break
        return found, place, now

    found, place, now = _with_store(url, look)
    if as_json:
        output.print_json({"jobs": [view(job, now) for job in found], "cursor": place})
        return
    if not found:
        output.print_line("no such jobs")
        return
    output.print_table(COLUMNS, [row_of(job, now) for job in found])
    if place:
        output.print_line(("more: ", "dim"), f"--cursor {place}")


@jobs.command()
@click.argument("job_id")
@store_option
@output.json_option
def show(*, job_id: str, url: str | None, as_json: bool) -> None:
    """Show one job with all that is known of it, attempt by attempt."""
    from reprieve.admin.look import get
    from reprieve.cli.summary import facts_of, row_of_attempt
    from reprieve.core.attempt import timeline
    from reprieve.views.jobs import view

    async def look(store: "Store") -> tuple[Any, Any, Any, int]:
        job = await get(store, store.clock, job_id)
        events = [event for _, event in await store.events(job_id=job.id)]
        return job, events, await store.progress(job.id), store.clock.now()

    job, events, progress, now = _with_store(url, look)
    attempts = timeline(events)
    if as_json:
        output.print_json(view(job, now, progress=progress) | {"attempts": attempts, "events": events})
        return
    output.print_facts(facts_of(job, now, progress))
    if attempts:
        output.print_line("")
        output.print_table(("attempt", "ended", "with", "why"), map(row_of_attempt, attempts))


@jobs.command()
@click.argument("job_ids", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why; it is kept in the audit trail.")
@click.option("--by", help="Who; your user name unless given.")
@click.option("--force", is_flag=True, help="Grant one more attempt to a job that has used up its own.")
@click.option("--delay", type=DURATION, default=0.0, help="Not now, but after this long.")
@store_option
@output.json_option
def retry(  # noqa: PLR0913 - one parameter an option
    *, job_ids: tuple[str, ...], reason: str, by: str | None, force: bool, delay: float, url: str | None, as_json: bool
) -> None:
    """Run jobs again that are dead, cancelled, retrying, parked or stuck."""
    from reprieve.admin.retry import retry as retry_job
    from reprieve.core.change import Request

    request = Request(by=by or _user(), reason=reason, force=force, delay=delay)
    stuck_after = settings_for(url).stuck_after

    async def act(store: "Store") -> list[Any]:
        return [await retry_job(store, store.clock, job_id, request, lambda _: stuck_after) for job_id in job_ids]

    answers = _with_store(url, act)
    if as_json:
        output.print_json(answers)
        return
    for answer in answers:
        position = f", position {answer.queue_position} in its lane" if answer.queue_position else ""
        output.print_line((answer.job_id, "cyan"), f" {answer.message}{position}")


@jobs.command()
@click.argument("job_ids", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why; it is kept in the audit trail.")
@click.option("--by", help="Who; your user name unless given.")
@store_option
@output.json_option
def cancel(*, job_ids: tuple[str, ...], reason: str, by: str | None, url: str | None, as_json: bool) -> None:
    """Give jobs up; one that runs is asked to stop."""
    from reprieve.admin.cancel import cancel as cancel_job
    from reprieve.core.change import Request

    request = Request(by=by or _user(), reason=reason)

    async def act(store: "Store") -> list[Any]:
        return [{"jobId": name, "answer": await cancel_job(store, store.clock, name, request)} for name in job_ids]

    answers = _with_store(url, act)
    if as_json:
        output.print_json(answers)
        return
    for answer in answers:
        output.print_line((answer["jobId"], "cyan"), f" {answer['answer']}")


@jobs.command()
@click.option("--job", "job_id", default="", help="Only what happens to this job.")
@click.option("--since", type=click.IntRange(0), help="Begin after this place in the stream; else with what is new.")
@click.option("--for", "length", type=DURATION, help="Stop after this long.")
@store_option
@output.json_option
def tail(*, job_id: str, since: int | None, length: float | None, url: str | None, as_json: bool) -> None:
    """Watch what happens to jobs: failures, retries, deaths, and what people do. Ctrl-C ends it."""
    from reprieve.cli.tail import follow

    async def watch(store: "Store") -> None:
        await follow(store, job_id=job_id, since=since, length=length, as_json=as_json)

    _with_store(url, watch)


def _with_store(url: str | None, work: Callable[["Store"], Coroutine[Any, Any, T]]) -> T:
    """Open the store that is meant, do something with it, and close it."""
    import asyncio

    from reprieve.stores.open import open_store

    settings = settings_for(url)

    async def run() -> T:
        store = open_store(settings.url, durability=settings.durability)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _user() -> str:
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):
        return "unknown"
