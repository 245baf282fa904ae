"""`reprieve demo`: what Reprieve does, without any set-up."""

import click


@click.command()
@click.option("--jobs", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="Size of the backlog.")
@click.option("--seed", type=int, default=1, show_default=True, help="Chance of the simulation.")
def demo(jobs: int, seed: int) -> None:
    """Show presets and verdicts, and play an outage with and without Park."""
    from rich.console import Console

    from reprieve.cli.demo import show

    show(Console(), jobs=jobs, seed=seed)
