"""The root of the command line: which commands there are, and where they live.

A command is imported when it is run: to add one, write it in a module of its name and enter it below.
"""

import click

from reprieve.cli.group import Entry, Root

COMMANDS = {
    "worker": Entry("reprieve.cli.worker:worker", "Run the jobs of an app."),
    "relay": Entry("reprieve.cli.relay:relay", "Bring the jobs of an outbox to the store."),
    "enqueue": Entry("reprieve.cli.enqueue:enqueue", "Store a call of a task."),
    "jobs": Entry("reprieve.cli.jobs:jobs", "Look at jobs, retry them, cancel them, and watch what happens to them."),
    "presets": Entry("reprieve.cli.presets:presets", "Look at the policies that have names."),
    "classify": Entry("reprieve.cli.classify:classify", "Say what an error is, and what would follow."),
    "config": Entry("reprieve.cli.config:config", "Show every setting, and where it comes from."),
    "doctor": Entry("reprieve.cli.doctor:doctor", "Examine this machine and its store."),
    "migrate": Entry("reprieve.cli.migrate:migrate", "Show the schema version of a store, and bring it up to date."),
    "demo": Entry("reprieve.cli.demo:demo", "Send e-mails while everything fails, and see that none is lost."),
    "simulate": Entry("reprieve.cli.simulate:simulate", "Play an outage in virtual time, with and without Park."),
    "version": Entry("reprieve.cli.version:version", "Say which releases are at work here."),
    "completion": Entry(
        "reprieve.cli.completion:completion", "Print the script that completes commands in your shell."
    ),
}
"""Every command, in the order of the help."""


def _version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:  # noqa: FBT001 - click's signature
    if is_asked and not ctx.resilient_parsing:
        from reprieve.cli.version import line

        click.echo(line())
        ctx.exit()


main = Root(
    COMMANDS,
    name="reprieve",
    help="Background jobs that survive failure.",
    epilog="reprieve COMMAND --help says more about each.",
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_version,
            help="Say the version and exit.",
        )
    ],
)
"""The command line."""
