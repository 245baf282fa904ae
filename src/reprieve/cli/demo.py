"""`reprieve demo`: a demonstration without any set-up."""

import click


@click.command()
@click.option("--jobs", type=click.IntRange(20, 5_000), default=600, show_default=True, help="E-mails to send.")
@click.option("--seed", type=int, default=1, show_default=True, help="Random seed.")
def demo(jobs: int, seed: int) -> int:
    """Send e-mails through a failing provider, and check that none is lost.

    There are three tenants, a provider that browns out and goes down, and a worker process that is killed. Everything
    is real – an SMTP server on a loopback port, a SQLite file, worker processes – and removed afterwards. The status is
    1 if a job is lost or runs twice without need.
    """
    from rich.console import Console

    from reprieve.demo.perform import perform

    return 0 if perform(Console(), jobs=jobs, seed=seed) else 1
