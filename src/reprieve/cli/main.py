"""The root of the command line: the list of commands and their modules.

A command is imported when it runs. To add one, write it in a module of its name and list it below.
"""

import click

from reprieve.cli.group import LazyCommand, Root

COMMANDS = {
    "worker": LazyCommand("reprieve.cli.worker:worker", "Run the jobs of an app."),
    "relay": LazyCommand("reprieve.cli.relay:relay", "Move jobs from an outbox to the store."),
    "enqueue": LazyCommand("reprieve.cli.enqueue:enqueue", "Enqueue a job."),
    "jobs": LazyCommand("reprieve.cli.jobs:jobs", "List, show, retry, cancel and watch jobs."),
    "workers": LazyCommand("reprieve.cli.workers:workers", "List the worker processes that are alive."),
    "presets": LazyCommand("reprieve.cli.presets:presets", "Show the named policies."),
    "classify": LazyCommand("reprieve.cli.classify:classify", "Classify an error, and show what would follow."),
    "config": LazyCommand("reprieve.cli.config:config", "Show every setting, and where it comes from."),
    "doctor": LazyCommand("reprieve.cli.doctor:doctor", "Check this machine and its store."),
    "migrate": LazyCommand("reprieve.cli.migrate:migrate", "Show the schema version of a store, and migrate it."),
    "demo": LazyCommand(
        "reprieve.cli.demo:demo", "Send e-mails through a failing provider, and check that none is lost."
    ),
    "simulate": LazyCommand(
        "reprieve.cli.simulate:simulate", "Simulate an outage in virtual time, with and without Park."
    ),
    "version": LazyCommand("reprieve.cli.version:version", "Show the versions of Reprieve, Python and SQLite."),
    "completion": LazyCommand("reprieve.cli.completion:completion", "Print the completion script for your shell."),
}
"""All commands, in the order of the help."""


def _version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:  # noqa: FBT001 - click's signature
    if is_asked and not ctx.resilient_parsing:
        from reprieve.cli.version import line

        click.echo(line())
        ctx.exit()


main = Root(
    COMMANDS,
    name="reprieve",
    help="Background jobs that survive failure.",
    epilog="Run reprieve COMMAND --help for more about a command.",
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_version,
            help="Show the version and exit.",
        )
    ],
)
"""The command line."""
