"""`reprieve demo`: what Reprieve does, without any set-up."""

import click


@click.command()
@click.option("--jobs", type=click.IntRange(20, 5_000), default=600, show_default=True, help="E-mails to send.")
@click.option("--seed", type=int, default=1, show_default=True, help="Chance of the demo.")
def demo(jobs: int, seed: int) -> int:
    """Send e-mails while everything fails, and see that none is lost.

    Three tenants, a provider that browns out and goes down, a worker process that is killed. Everything is real – an
    SMTP server on a loopback port, a SQLite file, worker processes – and gone afterwards. Ends with status 1 should a
    job be lost or run twice without need.
    """
    from rich.console import Console

    from reprieve.demo.perform import perform

    return 0 if perform(Console(), jobs=jobs, seed=seed) else 1
