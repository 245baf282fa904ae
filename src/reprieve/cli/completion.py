"""`reprieve completion`: print the completion script for a shell."""

import click
from click.shell_completion import ShellComplete, get_completion_class

INSTALL = {
    "bash": "reprieve completion bash > ~/.local/share/bash-completion/completions/reprieve",
    "zsh": 'reprieve completion zsh > "${fpath[1]}/_reprieve"',
    "fish": "reprieve completion fish > ~/.config/fish/completions/reprieve.fish",
}
"""How to install the script for each shell."""


@click.command()
@click.argument("shell", type=click.Choice(list(INSTALL)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for your shell."""
    complete = get_completion_class(shell)
    if complete is None:
        message = f"this release of click does not support {shell}"
        raise click.UsageError(message)
    root = ctx.find_root()
    # Not the `source` of click's bash class, which starts bash to check its version.
    script = ShellComplete.source(complete(root.command, {}, "reprieve", "_REPRIEVE_COMPLETE"))
    comment, first, rest = f"# Install: {INSTALL[shell]}\n", *_after_first_line(script)
    click.echo(first + comment + rest)


def _after_first_line(script: str) -> tuple[str, str]:
    """Return the part before and after the place for a comment: zsh needs #compdef on the first line."""
    if not script.startswith("#compdef"):
        return "", script.strip()
    first, _, rest = script.partition("\n")
    return f"{first}\n", rest.strip()
