"""`reprieve worker`: run the jobs of an app."""

from typing import TYPE_CHECKING

import click

from reprieve.cli import logs
from reprieve.cli.group import examples
from reprieve.cli.kinds import DURATION
from reprieve.cli.store import app_argument, choose_app, store_options

if TYPE_CHECKING:  # logs are set up when the command runs
    from reprieve.worker.logs import Level, Style


@click.command(
    epilog=examples(
        "reprieve worker shop:app",
        "reprieve worker shop:app --processes 4 --queue mail --queue default",
    )
)
@app_argument
@click.option(
    "-p", "--processes", type=click.IntRange(1), help="Worker processes. [default: the settings, else one per core]"
)
@click.option("-s", "--slots", type=click.IntRange(1), help="Jobs that each process runs concurrently.")
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    help="Serve this queue; repeat it in order of precedence. [default: all queues]",
)
@click.option("--grace", type=DURATION, help="How long running jobs may continue after a stop signal.")
@click.option("--lease", type=DURATION, help="How long a process without a heartbeat keeps its jobs.")
@click.option("--heartbeat", type=DURATION, help="The interval between heartbeats of a process.")
@store_options
@logs.log_options
def worker(  # noqa: PLR0913 - one parameter per option
    *,
    named: str | None,
    target: str | None,
    processes: int | None,
    slots: int | None,
    queues: tuple[str, ...],
    grace: float | None,
    lease: float | None,
    heartbeat: float | None,
    url: str | None,
    log_level: "Level",
    log_style: "Style",
) -> None:
    """Run the jobs of an app.

    shop.jobs:app is the app in the variable app of the module shop.jobs. The default is --app, REPRIEVE_APP or the
    configuration.

    SIGTERM or Ctrl-C lets running jobs finish within --grace and returns the rest; a second signal stops at once.
    """
    from msgspec.structs import replace

    from reprieve.worker.configuration import configure_worker
    from reprieve.worker.loop import run
    from reprieve.worker.supervisor import Supervisor
    from reprieve.worker.target import require_tasks

    app, name = choose_app(named, target, url)
    require_tasks(app, name)
    wanted = {
        "processes": processes,
        "slots": slots,
        "grace": grace,
        "lease": lease,
        "heartbeat": heartbeat,
    }
    app.settings = replace(app.settings, **{word: value for word, value in wanted.items() if value is not None})
    how = logs.configured(log_level, log_style)
    configuration = configure_worker(app, name, queues=queues, logs=how)

    async def work() -> None:
        await (await Supervisor.open(app, configuration)).run()

    run(work())
