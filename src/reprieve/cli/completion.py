"""`reprieve completion`: the script that makes a shell complete commands and options."""

import click
from click.shell_completion import ShellComplete, get_completion_class

INSTALL = {
    "bash": "reprieve completion bash > ~/.local/share/bash-completion/completions/reprieve",
    "zsh": 'reprieve completion zsh > "${fpath[1]}/_reprieve"',
    "fish": "reprieve completion fish > ~/.config/fish/completions/reprieve.fish",
}
"""How the script gets to where the shell looks for it."""


@click.command()
@click.argument("shell", type=click.Choice(list(INSTALL)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands in your shell."""
    complete = get_completion_class(shell)
    if complete is None:
        message = f"this release of click does not know {shell}"
        raise click.UsageError(message)
    root = ctx.find_root()
    # Not bash's own `source`: it starts a bash to ask for its version, and this may be another machine.
    script = ShellComplete.source(complete(root.command, {}, "reprieve", "_REPRIEVE_COMPLETE"))
    comment, first, rest = f"# Install: {INSTALL[shell]}\n", *_after_first_line(script)
    click.echo(first + comment + rest)


def _after_first_line(script: str) -> tuple[str, str]:
    """Part a script where a comment may stand: zsh wants its #compdef on the first line."""
    if not script.startswith("#compdef"):
        return "", script.strip()
    first, _, rest = script.partition("\n")
    return f"{first}\n", rest.strip()
