"""`reprieve version`: the versions to name in a bug report."""

import click

from reprieve import __version__
from reprieve.cli.output import json_option, print_json


@click.command()
@json_option
def version(*, as_json: bool) -> None:
    """Show the versions of Reprieve, Python and SQLite."""
    if as_json:
        print_json(_releases())
    else:
        click.echo(line())


def line() -> str:
    """Return all versions on one line."""
    releases = _releases()
    return "reprieve {reprieve} (Python {python}, SQLite {sqlite}, {platform})".format(**releases)


def _releases() -> dict[str, str]:
    import platform
    import sqlite3

    return {
        "reprieve": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "platform": f"{platform.system()} {platform.machine()}",
    }
