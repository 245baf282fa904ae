"""The root of the command line. Each command imports what it needs when it runs, so that help comes at once."""

import click

from reprieve import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="reprieve")
def main() -> None:
    """Background jobs that survive failure."""


@main.command()
@click.option("--jobs", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="Size of the backlog.")
@click.option("--seed", type=int, default=1, show_default=True, help="Chance of the simulation.")
def demo(jobs: int, seed: int) -> None:
    """Show the presets, classify errors, and play an outage in virtual time with and without Park."""
    from rich.console import Console  # noqa: PLC0415 - only this command prints tables

    from reprieve.cli.demo import show  # noqa: PLC0415 - as above

    show(Console(), jobs=jobs, seed=seed)
