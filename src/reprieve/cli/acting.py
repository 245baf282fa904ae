"""`reprieve jobs retry` and `reprieve jobs cancel`: what people do to jobs, each with who and why."""

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
    """Run jobs again that are dead, cancelled, retrying, parked or stuck.

    Every job is acted on, whatever becomes of the others, and each gets its line. The status is 4 if one was in the
    wrong state or had no attempts left; --force grants one more to such a job.
    """
    from reprieve.admin.retry import retry as retry_job
    from reprieve.core.change import Request

    request = Request(by=by or _user(), reason=reason, force=force, delay=delay)
    choice = choose(target, url)

    async def retry_one(store: "Store", job_id: str) -> Done:
        answer = await retry_job(store, store.clock, job_id, request, choice.stuck_after)
        position = f", position {answer.queue_position} in its lane" if answer.queue_position else ""
        return Done(answer.message + position, answer)

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
    """Give jobs up; one that runs is asked to stop.

    Every job is acted on, whatever becomes of the others, and each gets its line. The status is 4 if one had ended.
    """
    from reprieve.admin.cancel import cancel as cancel_job
    from reprieve.core.change import Request

    request = Request(by=by or _user(), reason=reason)

    async def cancel_one(store: "Store", job_id: str) -> Done:
        answer = await cancel_job(store, store.clock, job_id, request)
        return Done(answer, {"jobId": job_id, "answer": answer})

    choice = choose(target, url)
    read(choice, lambda store: _act(store, choice, job_ids, cancel_one, Report("cancelled", as_json=as_json)))


class Done(NamedTuple):
    """What was done to a job: the sentence for its line, and the document for scripts."""

    text: str
    document: object


class Report:
    """Reports what became of each job that was named: a line each, as it is known, or one JSON list at the end."""

    def __init__(self, verb: str, *, as_json: bool) -> None:
        """Take the word for what is done to the jobs, as a participle."""
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
        """Report a job that was left as it is, and why."""
        message = one_line(str(error))
        self._statuses.append(status_of(error))
        self._documents.append({"jobId": job_id, "error": {"code": error.code, "message": message}})
        if not self._as_json:
            print_error(message)

    def end(self) -> None:
        """Print what comes last; exit with the status of the errors, if there were any: 4 if one is a conflict."""
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
    """Do the work for every job that is named, whatever becomes of the others, and report each."""
    from reprieve.admin.resolve import resolve_each
    from reprieve.errors import ReprieveError, StoreError

    unavailable: StoreError | None = None
    for text, job_id in zip(texts, await resolve_each(store, store.clock, texts), strict=True):
        if isinstance(job_id, ReprieveError):
            report.add_error(text, job_id)
        elif unavailable is not None:
            # Each further call would wait for the same store as long as the last one did.
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
