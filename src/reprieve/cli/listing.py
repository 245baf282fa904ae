"""`reprieve jobs list`: a table for people, whole lines for pipes, ids or JSON for scripts."""

from typing import TYPE_CHECKING, Protocol

import click

from reprieve.cli import output
from reprieve.cli.group import examples
from reprieve.cli.store import Choice, choose, read, store_options

if TYPE_CHECKING:  # what the command needs is imported when it runs
    from reprieve.stores.protocol import Filter, Page, Store

SHOWN = 50
"""Jobs that a terminal shows unless told otherwise."""

PAGE = 5_000
"""Jobs that are read, and in a pipe printed, at a time."""


@click.command(
    "list",
    epilog=examples(
        "reprieve jobs list --status dead",
        "reprieve jobs list --task send_welcome --tenant acme --app shop:app",
        "reprieve jobs list --status failed --json",
    ),
)
@click.option("--status", "statuses", multiple=True, help="ready, retrying, parked, dead …, or failed, queued.")
@click.option("--queue", default="", help="Only of this queue.")
@click.option("--tenant", help="Only of this tenant.")
@click.option("--task", default="", help="Only of this task; the end of its name is enough where only one fits.")
@click.option("--dependency", help="Only those that call this.")
@click.option("--key", default="", help="Only the one with this key.")
@click.option("--code", default="", help="Only those that died with this error code.")
@click.option(
    "--limit", type=click.IntRange(1), help=f"At most so many; {SHOWN} on a terminal unless given, in a pipe all."
)
@click.option("--cursor", default="", help="Go on where the last page ended.")
@click.option("-q", "--quiet", is_flag=True, help="Print whole ids only, one a line, for xargs.")
@store_options
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
    limit: int | None,
    cursor: str,
    quiet: bool,
    target: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List jobs, as they are now: those that have not succeeded first, and of them the newest first.

    On Redis only a whole list on a terminal is in order; a pipe, or --limit, gets jobs in no order.

    A terminal shows the end of each id: enough to tell the listed jobs apart, and to name one to other commands. A pipe
    gets whole ids and texts, one job a line, and every job unless --limit is given.

    charged is what counts against the limit of attempts, and that limit; spared failures do not count.
    """
    from reprieve.core.status import matching
    from reprieve.stores.protocol import Filter

    if quiet and as_json:
        message = "--quiet and --json contradict each other; give one of them"
        raise click.UsageError(message, click.get_current_context())
    wanted = Filter(
        queue=queue,
        tenant=tenant,
        task=task,
        dependency=dependency,
        key=key,
        code=code,
        statuses=frozenset().union(*map(matching, statuses)),
        newest_first=True,
    )
    choice = choose(target, url)
    most = limit or (SHOWN if output.is_terminal() and not as_json and not quiet else None)
    printer = _Json() if as_json else _Ids() if quiet else _Rows(is_first=not cursor)
    read(choice, lambda store: _list(store, choice, wanted, cursor, most, printer))


class _Printer(Protocol):
    """Prints jobs as they come."""

    def add(self, page: "Page", now: int) -> None:
        """Print these, or keep them until the end."""
        ...

    def end(self, cursor: str, shown: int, total: int) -> None:
        """Print what comes last; a cursor is where to go on, and the total counts what is left as well."""
        ...


async def _list(
    store: "Store", choice: Choice, wanted: "Filter", cursor: str, most: int | None, printer: _Printer
) -> None:
    from msgspec.structs import replace

    from reprieve.views.tasks import resolve_stored

    await store.clock.tune()
    now, shown = store.clock.now(), 0
    if wanted.task:
        wanted = replace(wanted, task=await resolve_stored(store, now, wanted.task, choice.tasks))
    while True:
        page = await store.find(wanted, now, cursor, PAGE if most is None else min(PAGE, most - shown))
        printer.add(page, now)
        shown, cursor = shown + len(page.jobs), page.cursor
        if not cursor or shown == most:
            break
    total = sum((await store.tally("status", wanted, now)).values()) if cursor else shown
    printer.end(cursor, shown, total)


class _Rows:
    """A table: on a terminal of everything at once, elsewhere a page at a time."""

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
            output.print_note("no such jobs")
        elif cursor:
            output.print_note(f"{shown:,} of {max(total, shown):,} jobs; go on with --cursor {cursor}")
        else:
            output.print_note(f"{shown:,} {'job' if shown == 1 else 'jobs'}")

    def _print(self, *, is_sorted: bool = False) -> None:
        """Print what has come; a list that is shown whole is sorted, whatever order its store keeps."""
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
    """Whole ids, one a line."""

    def add(self, page: "Page", now: int) -> None:  # noqa: ARG002 - as every printer
        for job in page.jobs:
            click.echo(job.id)

    def end(self, cursor: str, shown: int, total: int) -> None:
        if cursor:
            click.echo(f"{shown:,} of {total:,} jobs; go on with --cursor {cursor}", err=True)


class _Json:
    """One document, written as the jobs come: it may be a large one."""

    def __init__(self) -> None:
        self._separator = '{"jobs": ['

    def add(self, page: "Page", now: int) -> None:  # noqa: ARG002 - as every printer
        import msgspec

        from reprieve.views.jobs import view

        for job, status in zip(page.jobs, page.statuses, strict=True):
            click.echo(f"{self._separator}\n  {msgspec.json.encode(view(job, status)).decode()}", nl=False)
            self._separator = ","

    def end(self, cursor: str, shown: int, total: int) -> None:
        import msgspec

        begin = self._separator if not shown else "\n"
        rest = msgspec.json.encode({"cursor": cursor, "total": total}).decode()
        click.echo(f"{begin}], {rest.removeprefix('{')}")
