"""`reprieve jobs retry` and `reprieve jobs cancel`: what people do to jobs, each with who and why."""

from typing import TYPE_CHECKING, Any

import click

from reprieve.cli import output
from reprieve.cli.group import examples
from reprieve.cli.kinds import DURATION
from reprieve.cli.store import choose, read, store_options

if TYPE_CHECKING:  # what a command needs is imported when it runs
    from reprieve.stores.protocol import Store

_jobs = click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
_reason = click.option("--reason", required=True, help="Why; it is kept with the job.")
_by = click.option("--by", help="Who; your user name unless given.")


@click.command(
    epilog=examples(
        'reprieve jobs retry 3f9a2c1e --reason "the provider is back"',
        'reprieve jobs list --status dead --quiet | xargs reprieve jobs retry --force --reason "fixed in 1.4"',
    )
)
@_jobs
@_reason
@_by
@click.option("--force", is_flag=True, help="Grant one more attempt to a job that has used up its own.")
@click.option("--delay", type=DURATION, default=0.0, help="Not now, but after this long.")
@store_options
@output.json_option
def retry(  # noqa: PLR0913 - one parameter an option
    *,
    job_ids: tuple[str, ...],
    reason: str,
    by: str | None,
    force: bool,
    delay: float,
    target: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Run jobs again that are dead, cancelled, retrying, parked or stuck."""
    from reprieve.admin.retry import retry as retry_job
    from reprieve.core.change import Request

    request = Request(by=by or _user(), reason=reason, force=force, delay=delay)
    choice = choose(target, url)

    async def act(store: "Store") -> list[Any]:
        from reprieve.admin.resolve import resolve

        ids = await resolve(store, store.clock, job_ids)
        return [await retry_job(store, store.clock, job_id, request, choice.stuck_after) for job_id in ids]

    answers = read(choice, act)
    if as_json:
        output.print_json(answers)
        return
    for answer in answers:
        position = f", position {answer.queue_position} in its lane" if answer.queue_position else ""
        output.print_line((answer.job_id, "cyan"), f" {answer.message}{position}")


@click.command(
    epilog=examples(
        'reprieve jobs cancel 3f9a2c1e --reason "ordered twice"',
    )
)
@_jobs
@_reason
@_by
@store_options
@output.json_option
def cancel(
    *, job_ids: tuple[str, ...], reason: str, by: str | None, target: str | None, url: str | None, as_json: bool
) -> None:
    """Give jobs up; one that runs is asked to stop."""
    from reprieve.admin.cancel import cancel as cancel_job
    from reprieve.core.change import Request

    request = Request(by=by or _user(), reason=reason)

    async def act(store: "Store") -> list[Any]:
        from reprieve.admin.resolve import resolve

        ids = await resolve(store, store.clock, job_ids)
        return [{"jobId": name, "answer": await cancel_job(store, store.clock, name, request)} for name in ids]

    answers = read(choose(target, url), act)
    if as_json:
        output.print_json(answers)
        return
    for answer in answers:
        output.print_line((answer["jobId"], "cyan"), f" {answer['answer']}")


def _user() -> str:
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):
        return "unknown"
