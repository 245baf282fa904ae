"""`reprieve relay`: move jobs from an outbox to the store."""

from typing import TYPE_CHECKING

import click

from reprieve.cli import logs, output
from reprieve.cli.exit import FAILED
from reprieve.cli.group import examples
from reprieve.cli.store import app_argument, choose_app, store_options

if TYPE_CHECKING:  # all of it is imported when the command runs
    from reprieve.relay import Relay, Relayed
    from reprieve.worker.logs import Level, Style
    from reprieve.worker.target import App


@click.command(
    epilog=examples(
        "reprieve relay shop:app",
        "reprieve relay shop:app --once --json",
    )
)
@app_argument
@click.option("--once", "is_once", is_flag=True, help="Relay the jobs that are there, print how many, and exit.")
@click.option("--refused", "is_again", is_flag=True, help="Try again the jobs that the store has refused.")
@click.option("--outbox", metavar="URL", help="The outbox. [default: the app, REPRIEVE_OUTBOX or the configuration]")
@store_options
@logs.log_options
@output.json_option
@click.pass_context
def relay(  # noqa: PLR0913 - one parameter per option
    ctx: click.Context,
    *,
    named: str | None,
    target: str | None,
    is_once: bool,
    is_again: bool,
    outbox: str | None,
    url: str | None,
    log_level: "Level",
    log_style: "Style",
    as_json: bool,
) -> None:
    """Move jobs from an outbox to the store.

    An app on Redis with an outbox writes the jobs of your transactions to the outbox. The relay moves them to the
    store, each exactly once, even if it is killed. It runs until SIGTERM or Ctrl-C, and waits while the outbox or the
    store is unreachable. Several relays may run at once. The app is that of --app, REPRIEVE_APP or the configuration.

    A job that the store refuses stays in the outbox, with the reason, and does not block others. The status is 1 if
    there was any.
    """
    from reprieve.worker import target as targets
    from reprieve.worker.loop import run

    app, _ = choose_app(named, target, url)
    if outbox is not None:
        targets.move_outbox(app, outbox)
    logs.configured(log_level, log_style)
    done = run(_relay(app, is_once=is_once, is_again=is_again))
    if as_json:
        output.print_json(done)
    elif is_once:
        refused = f", {done.refused:,} refused; reprieve doctor shows why" if done.refused else ""
        output.print_line(f"{done.relayed:,} relayed{refused}")
    if done.refused:
        ctx.exit(FAILED)


async def _relay(app: "App", *, is_once: bool, is_again: bool) -> "Relayed":
    from contextlib import AsyncExitStack

    from reprieve.errors import InvalidSetting
    from reprieve.relay import Relay

    async with AsyncExitStack() as stack:
        stack.push_async_callback(app.aclose)
        if app.outbox is None:
            message = 'the app has no outbox; write Reprieve("redis://…", outbox="postgresql://…"), or give --outbox'
            raise InvalidSetting(message)
        relay = Relay(app.outbox, app.store, app.clock)
        _stop_by_signal(relay)
        if is_again:
            await relay.readmit()
        return await (_drain(relay) if is_once else relay.run())


async def _drain(relay: "Relay") -> "Relayed":
    """Relay the jobs that are there, with a progress bar on a terminal."""
    import sys

    if not sys.stderr.isatty():
        return await relay.drain(lambda _: None)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("relaying", total=(await relay.look()).waiting)
        return await relay.drain(lambda done: progress.update(bar, completed=done.relayed + done.refused))


def _stop_by_signal(relay: "Relay") -> None:
    """Stop gracefully at the first signal, and at once at the second."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()

    def stop() -> None:
        relay.stop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
