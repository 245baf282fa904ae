"""`reprieve worker`: run the jobs of an app."""

from typing import TYPE_CHECKING

import click

from reprieve.cli import logs
from reprieve.cli.kinds import DURATION
from reprieve.cli.store import store_option

if TYPE_CHECKING:  # logs are set up when the command runs
    from reprieve.worker.logs import Level, Style


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("-p", "--processes", type=click.IntRange(1), help="Worker processes; else the settings, else one a core.")
@click.option("-s", "--slots", type=click.IntRange(1), help="Jobs that each process runs at once.")
@click.option("-q", "--queue", "queues", multiple=True, help="Serve this queue, the first first; else every one.")
@click.option("--grace", type=DURATION, help="How long running jobs may finish when the worker is told to stop.")
@click.option("--lease", type=DURATION, help="How long a process that is not heard of keeps its jobs.")
@click.option("--heartbeat", type=DURATION, help="How often each process is heard of.")
@store_option
@logs.log_options
def worker(  # noqa: PLR0913 - one parameter an option
    *,
    target: str,
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

    It is named by its module: `reprieve worker shop.jobs:app`. SIGTERM or Ctrl-C lets running jobs finish within the
    grace and gives the rest back; a second one ends at once.
    """
    from msgspec.structs import replace

    from reprieve.worker import target as targets
    from reprieve.worker.loop import run
    from reprieve.worker.plan import plan_for
    from reprieve.worker.supervisor import Supervisor

    place = targets.load(target)
    targets.require_tasks(place, target)
    if url is not None:
        targets.move(place, url)
    wanted = {
        "processes": processes,
        "slots": slots,
        "grace": grace,
        "lease": lease,
        "heartbeat": heartbeat,
    }
    place.settings = replace(place.settings, **{name: value for name, value in wanted.items() if value is not None})
    how = logs.configured(log_level, log_style)
    plan = plan_for(place, target, queues=queues, logs=how)

    async def work() -> None:
        await Supervisor(place, plan).run()

    run(work())
