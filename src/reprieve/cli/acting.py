"""`reprieve jobs retry` and `reprieve jobs cancel`: manual actions, each with a name and a reason."""

import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reprieve.cli import output
from reprieve.cli.exit import CONFLICT, one_line, print_error, status_of
from reprieve.cli.group import examples
from reprieve.cli.kinds import DURATION
from reprieve.cli.store import Choice, choose, explaining, read, store_options

if TYPE_CHECKING:  # what a command needs is imported when it runs
    from reprieve.errors import ReprieveError
    from reprieve.stores.protocol import Store

_jobs = click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
_reason = click.option("--reason", required=True, help="Why; stored with the job.")
_by = click.option("--by", help="Who. [default: your user name]")


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
@click.option("--delay", type=DURATION, default=0.0, help="Retry after this long.")
@store_options
@output.json_option
def retry(  # noqa: PLR0913 - one parameter per option
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
    """Run jobs again that are dead, cancelled, retrying, parked or stuck.

    An error with one job does not stop the others; each job prints a line. The status is 4 if a job was in the wrong
    state or had no attempts left; --force grants it one more attempt.
    """
    from reprieve.admin.retry import retry as retry_job
    from reprieve.core.change import Request

    request = Request(by=by or _user(), reason=reason, force=force, delay=delay)
    choice = choose(target, url)

    async def retry_one(store: "Store", job_id: str) -> Done:
        result = await retry_job(store, store.clock, job_id, request, choice.stuck_after)
        more = "+" if result.queue_position_is_bounded else ""
        position = f", position {result.queue_position}{more} in its lane" if result.queue_position else ""
        return Done(result.message + position, result)

    read(choice, lambda store: _act(store, choice, job_ids, retry_one, Report("retried", as_json=as_json)))


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
    """Cancel jobs; a running job is asked to stop.

    An error with one job does not stop the others; each job prints a line. The status is 4 if a job had ended.
    """
    from reprieve.admin.cancel import cancel as cancel_job
    from reprieve.core.change import Request

    request = Request(by=by or _user(), reason=reason)

    async def cancel_one(store: "Store", job_id: str) -> Done:
        message = await cancel_job(store, store.clock, job_id, request)
        return Done(message, {"jobId": job_id, "message": message})

    choice = choose(target, url)
    read(choice, lambda store: _act(store, choice, job_ids, cancel_one, Report("cancelled", as_json=as_json)))


class Done(NamedTuple):
    """What was done to a job: the text for people, and the document for scripts."""

    text: str
    document: object


class Report:
    """Reports the result for each job: a line at once, or one JSON list at the end."""

    def __init__(self, verb: str, *, as_json: bool) -> None:
        """Take the participle for what is done to the jobs, such as "retried"."""
        self._verb = verb
        self._as_json = as_json
        self._documents: list[object] = []
        self._statuses: list[int] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was reported yet."""
        return not self._documents

    def add_done(self, job_id: str, done: Done) -> None:
        """Report a job that was acted on."""
        self._documents.append(done.document)
        if not self._as_json:
            output.print_line((job_id, "cyan"), f" {done.text}")
            sys.stdout.flush()

    def add_error(self, job_id: str, error: "ReprieveError") -> None:
        """Report a job that was left unchanged, and why."""
        message = one_line(str(error))
        self._statuses.append(status_of(error))
        self._documents.append({"jobId": job_id, "error": {"code": error.code, "message": message}})
        if not self._as_json:
            print_error(message)

    def end(self) -> None:
        """Print the summary; if there were errors, exit with their status: 4 if one is a conflict."""
        failed, total = len(self._statuses), len(self._documents)
        if self._as_json:
            output.print_json(self._documents)
        elif failed and total > 1:
            click.echo(f"{total - failed:,} of {total:,} jobs {self._verb}; {failed:,} left unchanged", err=True)
        if self._statuses:
            sys.exit(CONFLICT if CONFLICT in self._statuses else self._statuses[0])


async def _act(
    store: "Store",
    choice: Choice,
    texts: Sequence[str],
    work: Callable[["Store", str], Coroutine[Any, Any, Done]],
    report: Report,
) -> None:
    """Call `work` for each named job and report each result; an error does not stop the others."""
    from reprieve.admin.resolve import resolve_each
    from reprieve.errors import ReprieveError, StoreError

    unavailable: StoreError | None = None
    for text, job_id in zip(texts, await resolve_each(store, store.clock, texts), strict=True):
        if isinstance(job_id, ReprieveError):
            report.add_error(text, job_id)
        elif unavailable is not None:
            # Each further call would wait for the unavailable store again.
            report.add_error(job_id, unavailable)
        else:
            try:
                async with explaining(choice, job_id):
                    done = await work(store, job_id)
                report.add_done(job_id, done)
            except StoreError as error:
                if report.is_empty:
                    raise
                unavailable = error
                report.add_error(job_id, error)
            except ReprieveError as error:
                report.add_error(job_id, error)
    report.end()


def _user() -> str:
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):
        return "unknown"
