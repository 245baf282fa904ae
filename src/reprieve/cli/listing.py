"""`reprieve jobs list`: a table for people, whole lines for pipes, ids or JSON for scripts."""

from typing import TYPE_CHECKING, Protocol

import click

from reprieve.cli import output
from reprieve.cli.group import examples
from reprieve.cli.store import Choice, choose, read, store_options

if TYPE_CHECKING:  # what the command needs is imported when it runs
    from reprieve.stores.protocol import Filter, Page, Store

TERMINAL_JOBS = 50
"""The default limit on a terminal."""

PAGE_JOBS = 5_000
"""Jobs that are read at a time, and in a pipe printed at a time."""


@click.command(
    "list",
    epilog=examples(
        "reprieve jobs list --status dead",
        "reprieve jobs list --task send_welcome --tenant acme --app shop:app",
        "reprieve jobs list --status failed --json",
    ),
)
@click.option(
    "--status", "statuses", multiple=True, help="ready, retrying, parked, dead … or a synonym such as failed, queued."
)
@click.option("--queue", default="", help="Only this queue.")
@click.option("--tenant", help="Only this tenant.")
@click.option("--task", default="", help="Only this task; the end of its name is enough if it is unique.")
@click.option("--dependency", help="Only jobs that call this dependency.")
@click.option("--key", default="", help="Only the job with this key.")
@click.option("--code", default="", help="Only jobs that died with this error code.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    help=f"At most this many; {TERMINAL_JOBS} by default on a terminal, all jobs in a pipe.",
)
@click.option("--cursor", default="", help="Continue after the last page.")
@click.option("-q", "--quiet", is_flag=True, help="Print only whole ids, one per line, for xargs.")
@store_options
@output.json_option
def list_jobs(  # noqa: PLR0913 - one parameter per option
    *,
    statuses: tuple[str, ...],
    queue: str,
    tenant: str | None,
    task: str,
    dependency: str | None,
    key: str,
    code: str,
    limit: int | None,
    cursor: str,
    quiet: bool,
    target: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List jobs: those that run, that are ready, that wait, and that have ended, each the newest first.

    A terminal shows the end of each id, as many digits as identify the listed jobs; other commands accept it. A pipe
    gets whole ids and texts, one job per line, and every job unless --limit is given.

    charged counts the failures that use up the limit of attempts, with that limit; spared failures do not count.
    """
    from reprieve.core.status import matching
    from reprieve.stores.protocol import Filter

    if quiet and as_json:
        message = "--quiet and --json exclude each other; give one of them"
        raise click.UsageError(message, click.get_current_context())
    wanted = Filter(
        queues=(queue,) if queue else (),
        tenants=() if tenant is None else (tenant,),
        tasks=(task,) if task else (),
        dependencies=() if dependency is None else (dependency,),
        key=key,
        codes=(code,) if code else (),
        statuses=frozenset().union(*map(matching, statuses)),
    )
    choice = choose(target, url)
    most = limit or (TERMINAL_JOBS if output.is_terminal() and not as_json and not quiet else None)
    printer = _Json() if as_json else _Ids() if quiet else _Rows(is_first=not cursor)
    read(choice, lambda store: _list(store, choice, wanted, cursor, most, printer))


class _Printer(Protocol):
    """Prints pages of jobs."""

    def add(self, page: "Page", now: int) -> None:
        """Print a page, or keep it until the end."""
        ...

    def end(self, cursor: str, shown: int, total: int) -> None:
        """Print the end of the list; the cursor is where to continue, and the total includes jobs not shown."""
        ...


async def _list(
    store: "Store", choice: Choice, wanted: "Filter", cursor: str, most: int | None, printer: _Printer
) -> None:
    from msgspec.structs import replace

    from reprieve.views.tasks import resolve_stored

    await store.clock.tune()
    now, shown = store.clock.now(), 0
    if wanted.tasks:
        wanted = replace(wanted, tasks=(await resolve_stored(store, now, wanted.tasks[0], choice.tasks),))
    while True:
        page = await store.find(
            wanted, now, cursor, PAGE_JOBS if most is None else min(PAGE_JOBS, most - shown), "newest"
        )
        printer.add(page, now)
        shown, cursor = shown + len(page.jobs), page.cursor
        if not cursor or shown == most:
            break
    total = sum((await store.tally("status", wanted, now)).counts.values()) if cursor else shown
    printer.end(cursor, shown, total)


class _Rows:
    """A table: printed as a whole on a terminal, elsewhere a page at a time."""

    def __init__(self, *, is_first: bool) -> None:
        from reprieve.cli.summary import COLUMNS
        from reprieve.cli.table import Table

        self._table = Table(COLUMNS)
        self._is_first = is_first
        self._pages: list[tuple[Page, int]] = []

    def add(self, page: "Page", now: int) -> None:
        self._pages.append((page, now))
        if not output.is_terminal():
            self._print()

    def end(self, cursor: str, shown: int, total: int) -> None:
        self._print(is_sorted=self._is_first and not cursor)
        if not shown:
            output.print_note("no matching jobs")
        elif cursor:
            output.print_note(f"{shown:,} of {max(total, shown):,} jobs; continue with --cursor {cursor}")
        else:
            output.print_note(f"{shown:,} {'job' if shown == 1 else 'jobs'}")

    def _print(self, *, is_sorted: bool = False) -> None:
        """Print the pages so far; a list that is shown whole is sorted."""
        from reprieve.admin.resolve import digits_for, short
        from reprieve.cli.summary import row_of

        pages, self._pages = self._pages, []
        rows = [(*found, now) for page, now in pages for found in zip(page.jobs, page.statuses, strict=True)]
        if is_sorted:
            rows.sort(key=lambda row: (row[1] != "succeeded", row[0].id), reverse=True)
        digits = digits_for([job.id for job, _, _ in rows]) if output.is_terminal() else None
        if rows:
            self._table.print(
                [row_of(job, status, now, short(job.id, digits) if digits else job.id) for job, status, now in rows]
            )


class _Ids:
    """Whole ids, one per line."""

    def add(self, page: "Page", now: int) -> None:  # noqa: ARG002 - as every printer
        for job in page.jobs:
            click.echo(job.id)

    def end(self, cursor: str, shown: int, total: int) -> None:
        if cursor:
            click.echo(f"{shown:,} of {total:,} jobs; continue with --cursor {cursor}", err=True)


class _Json:
    """One JSON document, written page by page."""

    def __init__(self) -> None:
        self._separator = '{"jobs": ['

    def add(self, page: "Page", now: int) -> None:  # noqa: ARG002 - as every printer
        from reprieve.views.jobs import view

        for job, status in zip(page.jobs, page.statuses, strict=True):
            click.echo(f"{self._separator}\n  {output.json_line(view(job, status))}", nl=False)
            self._separator = ","

    def end(self, cursor: str, shown: int, total: int) -> None:
        begin = self._separator if not shown else "\n"
        rest = output.json_line({"cursor": cursor, "total": total})
        click.echo(f"{begin}], {rest.removeprefix('{')}")
