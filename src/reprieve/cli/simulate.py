"""`reprieve simulate`: an outage in virtual time."""

import click


@click.command()
@click.option("--jobs", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="Size of the backlog.")
@click.option("--seed", type=int, default=1, show_default=True, help="Random seed.")
def simulate(jobs: int, seed: int) -> None:
    """Simulate an outage in virtual time, with and without Park.

    The dependency of all jobs is down for a minute. The production code decides.
    """
    from rich.console import Console

    from reprieve.cli.ledger import show

    show(Console(), jobs=jobs, seed=seed)
