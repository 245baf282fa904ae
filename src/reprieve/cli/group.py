"""Command groups: subcommands are listed in order of declaration and imported when they run."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from reprieve.cli.exit import run


def examples(*lines: str) -> str:
    """Return the epilog of a command's help: one example per line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class LazyCommand(NamedTuple):
    """The import path of a command, as `module:attribute`, and its line of help."""

    path: str
    help: str

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.path.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class Group(click.Group):
    """A group of commands; without a subcommand it prints its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of their declaration."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help when no arguments are given."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named command; the error for an unknown name suggests a similar one."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            from reprieve.core.suggestion import suggest

            ctx.fail(f"there is no command {name!r}; {suggest(name, known, 'commands')}")
        return super().resolve_command(ctx, args)


class Root(Group):
    """The root group: it imports commands by their entries, and sets the exit status."""

    def __init__(self, entries: Mapping[str, LazyCommand], **settings: Any) -> None:  # noqa: ANN401 - the options of a group
        """Create the group from its entries."""
        super().__init__(**settings)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the entries."""
        return [*self.entries, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import only the command that runs."""
        entry = self.entries.get(cmd_name)
        return super().get_command(ctx, cmd_name) if entry is None else entry.load()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the list of commands from the entries, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names from the entries: nothing is imported, so that completion is fast."""
        names = [
            CompletionItem(name, help=entry.help) for name, entry in self.entries.items() if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def main(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401 - click's signature differs by release
        """Run the command line, and exit the process with its status."""
        return run(super().main, *args, **settings)
