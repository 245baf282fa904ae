"""`reprieve jobs`: list, show, retry, cancel and watch jobs."""

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reprieve.cli import output
from reprieve.cli.acting import cancel, retry
from reprieve.cli.exit import one_line
from reprieve.cli.group import Group, examples
from reprieve.cli.kinds import DURATION, SINCE, Since
from reprieve.cli.listing import list_jobs
from reprieve.cli.store import choose, explaining, read, store_options

if TYPE_CHECKING:  # what a command needs is imported when it runs
    from reprieve.admin.lookup import Found
    from reprieve.core.events import Event
    from reprieve.stores.protocol import FailureGroup, Store


@click.group(cls=Group)
def jobs() -> None:
    """List, show, retry, cancel and watch jobs.

    A job is named by its id, or by 4 or more hex digits at the beginning or end of its id if they identify one job.
    """


@click.command(
    epilog=examples(
        "reprieve jobs show 3f9a2c1e",
        "reprieve jobs show 3f9a2c1e --traceback",
        "reprieve jobs show 3f9a2c1e --app shop:app --json",
    )
)
@click.argument("job_id", metavar="JOB")
@click.option("--traceback", "is_full", is_flag=True, help="Show the full traceback, with the frames of libraries.")
@store_options
@output.json_option
def show(*, job_id: str, is_full: bool, target: str | None, url: str | None, as_json: bool) -> None:
    """Show one job with its history, and the traceback of its last failure.

    The full traceback is that of the first failure with the same fingerprint. It is kept once for all such jobs.
    """
    from reprieve.core.attempt import timeline
    from reprieve.views.jobs import view
    from reprieve.views.story import story

    choice = choose(target, url)

    async def look(store: "Store") -> "Looked":
        from reprieve.admin.lookup import find_job
        from reprieve.admin.resolve import resolve
        from reprieve.stores.paginate import all_events

        (whole,) = await resolve(store, store.clock, [job_id])
        async with explaining(choice, whole):
            found = await find_job(store, store.clock, whole)
        fingerprint = "" if found.job.cause is None else found.job.cause.fingerprint
        return Looked(
            found=found,
            events=await all_events(store, whole),
            progress=await store.progress(whole),
            groups=await store.failure_groups([fingerprint] if fingerprint else []),
            now=store.clock.now(),
        )

    (job, status), events, progress, groups, now = read(choice, look)
    steps = story(job, events)
    if as_json:
        facts: dict[str, Any] = view(job, status, progress=progress)
        group = groups[0] if groups else None
        output.print_json(
            facts | {"attempts": timeline(events), "events": events, "story": steps, "failureGroup": group}
        )
        return
    from reprieve.cli.pages import print_failure_group, print_story, print_traceback
    from reprieve.cli.summary import facts_of

    output.print_facts(facts_of(job, status, now, progress))
    output.print_line("")
    print_story(steps, now)
    if is_full and groups:
        print_failure_group(groups[0], now)
    elif job.cause is not None and job.cause.traceback:
        print_traceback(job.cause.traceback)
    if is_full and not groups:
        output.print_note("there is no full traceback of this job's last failure in the store")


class Looked(NamedTuple):
    """What the store has about one job."""

    found: "Found"
    events: list["Event"]
    progress: bytes | None
    groups: list["FailureGroup"]
    """The group of its last failure, if it is kept."""
    now: int


@click.command(
    epilog=examples(
        "reprieve jobs tail",
        "reprieve jobs tail --since 10m --task send_welcome --status dead",
        "reprieve jobs tail --job 3f9a2c1e --since 0 --for 10s",
    )
)
@click.option("--job", "job_id", metavar="JOB", default="", help="Only events of this job.")
@click.option("--task", default="", help="Only this task; the end of its name is enough if it is unique.")
@click.option("--tenant", help="Only this tenant.")
@click.option("--status", "statuses", multiple=True, help="Only events that lead to this status: dead, parked …")
@click.option(
    "--since",
    type=SINCE,
    help="Begin this long ago (10m), or after this position in the stream (1842). [default: new events]",
)
@click.option("--for", "length", type=DURATION, help="Stop after this long.")
@store_options
@output.json_option
def tail(  # noqa: PLR0913 - one parameter per option
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
    """Watch events of jobs: failures, retries, deaths, and what people do. Stop with Ctrl-C.

    Events have the names of the worker's log. A job that the store no longer has is shown without its task and tenant,
    and is left out with --task and --tenant.
    """
    from reprieve.cli.tail import Watch, follow
    from reprieve.core.status import matching

    choice = choose(target, url)
    wanted = frozenset().union(*map(matching, statuses))

    async def watch(store: "Store") -> None:
        from reprieve.admin.resolve import resolve
        from reprieve.core.redact import mask_url
        from reprieve.views.tasks import resolve_stored

        watched = Watch(
            job_id=(await resolve(store, store.clock, [job_id]))[0] if job_id else "",
            task=await resolve_stored(store, store.clock.now(), task, choice.tasks) if task else "",
            tenant=tenant,
            statuses=wanted,
            position=None if since is None else since.position,
            ago=None if since is None else since.seconds_ago,
            length=length,
        )
        end = "" if length is not None else "; stop with Ctrl-C"
        click.echo(one_line(f"watching {watched.describe()} in {mask_url(choice.settings.url)}{end}"), err=True)
        await follow(store, watched, as_json=as_json)

    read(choice, watch)


for command in (list_jobs, show, retry, cancel, tail):
    jobs.add_command(command)
