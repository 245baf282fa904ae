"""`reprieve jobs`: look at jobs, retry them, cancel them, and watch what happens to them."""

from typing import TYPE_CHECKING, Any

import click

from reprieve.cli import output
from reprieve.cli.acting import cancel, retry
from reprieve.cli.group import Group, examples
from reprieve.cli.kinds import DURATION, SINCE, Since
from reprieve.cli.listing import list_jobs
from reprieve.cli.store import choose, explaining, read, store_options

if TYPE_CHECKING:  # what a command needs is imported when it runs
    from reprieve.admin.lookup import Found
    from reprieve.core.events import Event
    from reprieve.stores.protocol import Store

PAGE = 1_000


@click.group(cls=Group)
def jobs() -> None:
    """Look at jobs, retry them, cancel them, and watch what happens to them.

    A job is named by its whole id, or by 4 or more of the hex digits that its id begins or ends with, as long as no
    other job's does.
    """


@click.command(
    epilog=examples(
        "reprieve jobs show 3f9a2c1e",
        "reprieve jobs show 3f9a2c1e --app shop:app --json",
    )
)
@click.argument("job_id", metavar="JOB")
@store_options
@output.json_option
def show(*, job_id: str, target: str | None, url: str | None, as_json: bool) -> None:
    """Show one job with everything that happened to it."""
    from reprieve.core.attempt import timeline
    from reprieve.views.jobs import view
    from reprieve.views.story import story

    choice = choose(target, url)

    async def look(store: "Store") -> tuple["Found", list["Event"], bytes | None, int]:
        from reprieve.admin.lookup import find_job
        from reprieve.admin.resolve import resolve

        (whole,) = await resolve(store, store.clock, [job_id])
        async with explaining(choice, whole):
            found = await find_job(store, store.clock, whole)
        return found, await _events(store, whole), await store.progress(whole), store.clock.now()

    (job, status), events, progress, now = read(choice, look)
    steps = story(job, events)
    if as_json:
        facts: dict[str, Any] = view(job, status, progress=progress)
        output.print_json(facts | {"attempts": timeline(events), "events": events, "story": steps})
        return
    from reprieve.cli.pages import print_story
    from reprieve.cli.summary import facts_of

    output.print_facts(facts_of(job, status, now, progress))
    output.print_line("")
    print_story(steps, now)


async def _events(store: "Store", job_id: str) -> list["Event"]:
    """Return everything that the store has kept of what happened to a job."""
    events: list[Event] = []
    place = 0
    while page := await store.events(after=place, limit=PAGE, job_id=job_id):
        events += [event for _, event in page]
        place = page[-1][0]
    return events


@click.command(
    epilog=examples(
        "reprieve jobs tail",
        "reprieve jobs tail --since 10m --task send_welcome --status dead",
        "reprieve jobs tail --job 3f9a2c1e --since 0 --for 10s",
    )
)
@click.option("--job", "job_id", metavar="JOB", default="", help="Only what happens to this job.")
@click.option("--task", default="", help="Only of this task; the end of its name is enough where only one fits.")
@click.option("--tenant", help="Only of this tenant.")
@click.option("--status", "statuses", multiple=True, help="Only what brings a job into this status: dead, parked …")
@click.option(
    "--since",
    type=SINCE,
    help="Begin so long ago (10m), or after this place in the stream (1842); else with what is new.",
)
@click.option("--for", "length", type=DURATION, help="Stop after this long.")
@store_options
@output.json_option
def tail(  # noqa: PLR0913 - one parameter an option
    *,
    job_id: str,
    task: str,
    tenant: str | None,
    statuses: tuple[str, ...],
    since: Since | None,
    length: float | None,
    target: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Watch what happens to jobs: failures, retries, deaths, and what people do. Ctrl-C ends it.

    What happens is named as in the log of a worker. A job that the store no longer has is shown without its task and
    tenant, and by no filter that goes by them.
    """
    from reprieve.cli.tail import Watch, follow
    from reprieve.core.status import matching

    choice = choose(target, url)
    wanted = frozenset().union(*map(matching, statuses))

    async def watch(store: "Store") -> None:
        from reprieve.admin.resolve import resolve
        from reprieve.stores.url import masked
        from reprieve.views.tasks import resolve_stored

        watched = Watch(
            job_id=(await resolve(store, store.clock, [job_id]))[0] if job_id else "",
            task=await resolve_stored(store, store.clock.now(), task, choice.tasks) if task else "",
            tenant=tenant,
            statuses=wanted,
            place=None if since is None else since.place,
            ago=None if since is None else since.seconds_ago,
            length=length,
        )
        end = "" if length is not None else "; Ctrl-C ends it"
        click.echo(f"watching {watched.describe()} in {masked(choice.settings.url)}{end}", err=True)
        await follow(store, watched, as_json=as_json)

    read(choice, watch)


for command in (list_jobs, show, retry, cancel, tail):
    jobs.add_command(command)
