"""`reprieve version`: the releases that are at work, in the words of a bug report."""

import click

from reprieve import __version__
from reprieve.cli.output import json_option, print_json


@click.command()
@json_option
def version(*, as_json: bool) -> None:
    """Say which releases are at work here."""
    if as_json:
        print_json(_releases())
    else:
        click.echo(line())


def line() -> str:
    """Return everything on one line."""
    at_work = _releases()
    return "reprieve {reprieve} (Python {python}, SQLite {sqlite}, {platform})".format(**at_work)


def _releases() -> dict[str, str]:
    import platform
    import sqlite3

    return {
        "reprieve": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "platform": f"{platform.system()} {platform.machine()}",
    }
