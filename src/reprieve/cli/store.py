"""Which store a command means: its argument or option, then REPRIEVE_URL, then reprieve.toml, then the default."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # settings are read when a command runs
    from reprieve.config import Settings

store_argument = click.argument("url", required=False)
"""The store as an argument, for commands that are about the store."""

store_option = click.option("--store", "url", metavar="URL", help="The store; else REPRIEVE_URL or reprieve.toml says.")
"""The store as an option, for commands that are about something in it."""


def settings_for(url: str | None) -> "Settings":
    """Load the settings, with the URL that was given in the place of any other."""
    from msgspec.structs import replace

    from reprieve.config import load

    settings = load().settings
    return settings if url is None else replace(settings, url=url)
