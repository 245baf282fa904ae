"""`reprieve workers`: the worker processes that are alive, as the store knows them."""

from typing import TYPE_CHECKING

import click

from reprieve.cli import output
from reprieve.cli.group import examples
from reprieve.cli.store import choose, read, store_options
from reprieve.cli.table import Column, Table

if TYPE_CHECKING:  # what the command needs is imported when it runs
    from reprieve.stores.protocol import Session, Store


COLUMNS = (
    Column("session", shrinks="start", min_width=8),
    Column("host", shrinks="end", min_width=6),
    Column("pid"),
    Column("version"),
    Column("queues", shrinks="end", min_width=8, weight=2),
    Column("tasks"),
    Column("running"),
    Column("slots"),
    Column("ahead"),
    Column("since"),
    Column("heartbeat"),
)


@click.command(epilog=examples("reprieve workers", "reprieve workers --app shop:app --json"))
@store_options
@output.json_option
def workers(*, target: str | None, url: str | None, as_json: bool) -> None:
    """List the worker processes that are alive.

    Each process has a session, which its supervisor keeps alive; pid is that of the supervisor. A process that has died
    is listed until its lease ends. ahead is how many jobs it fetches before it has slots for them.
    """

    async def look(store: "Store") -> tuple[list["Session"], int]:
        await store.clock.tune()
        now = store.clock.now()
        return await store.sessions(now), now

    sessions, now = read(choose(target, url), look)
    if as_json:
        from reprieve.views.fields import all_fields

        output.print_json({"workers": [all_fields(session) for session in sessions]})
        return
    if sessions:
        Table(COLUMNS).print([_row_of(session, now) for session in sessions])
    count = len(sessions)
    output.print_note(f"{count:,} worker {'process' if count == 1 else 'processes'}" if count else "no workers")


def _row_of(session: "Session", now: int) -> list[output.Cell]:
    from reprieve.views.moments import roughly

    return [
        (session.id, "cyan"),
        session.host,
        str(session.pid or ""),
        session.version,
        ", ".join(session.queues) or "all",
        str(len(session.tasks)),
        str(session.running),
        str(session.slots),
        str(session.prefetch),
        roughly(session.since, now) if session.since else "",
        roughly(session.heartbeat_at, now) if session.heartbeat_at else "",
    ]
