"""`reprieve simulate`: an outage in virtual time."""

import click


@click.command()
@click.option("--jobs", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="Size of the backlog.")
@click.option("--seed", type=int, default=1, show_default=True, help="Chance of the simulation.")
def simulate(jobs: int, seed: int) -> None:
    """Play an outage in virtual time, with and without Park.

    The dependency of all jobs is down for a minute. The decisions are the real ones.
    """
    from rich.console import Console

    from reprieve.cli.ledger import show

    show(Console(), jobs=jobs, seed=seed)
