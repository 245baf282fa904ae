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
@click.option("-p", "--processes", type=click.IntRange(1), help="Worker processes; else the settings, else one a core.")
@click.option("-s", "--slots", type=click.IntRange(1), help="Jobs that each process runs at once.")
@click.option("-q", "--queue", "queues", multiple=True, help="Serve this queue, the first first; else every one.")
@click.option("--grace", type=DURATION, help="How long running jobs may finish when the worker is told to stop.")
@click.option("--lease", type=DURATION, help="How long a process that is not heard of keeps its jobs.")
@click.option("--heartbeat", type=DURATION, help="How often each process is heard of.")
@store_options
@logs.log_options
def worker(  # noqa: PLR0913 - one parameter an option
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

    The app is named by its module: shop.jobs:app is the app that is called app in the module shop.jobs. Without it,
    --app, REPRIEVE_APP or the configuration names the app.

    SIGTERM or Ctrl-C lets running jobs finish within the grace and gives the rest back; a second one ends at once.
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
        await Supervisor(app, configuration).run()

    run(work())
