"""Completion: the scripts, and what shells are answered at a tab."""

import subprocess

import pytest

from tests.cli.shell import process, reprieve


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script_that_says_how_to_install_it(shell: str) -> None:
    lines = reprieve("completion", shell).stdout.splitlines()
    assert sum(line.startswith("# Install: reprieve completion " + shell) for line in lines) == 1
    assert any(f"_REPRIEVE_COMPLETE={shell}_complete" in line for line in lines)


def test_the_script_of_zsh_begins_as_zsh_wants_it() -> None:
    assert reprieve("completion", "zsh").stdout.startswith("#compdef reprieve\n")


def test_bash_accepts_its_script() -> None:
    script = reprieve("completion", "bash").stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=30)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("reprieve pre", ["plain,presets"]),
        ("reprieve c", ["plain,classify", "plain,config", "plain,completion"]),
        ("reprieve presets s", ["plain,show"]),
        ("reprieve completion z", ["plain,zsh"]),
        ("reprieve version --j", ["plain,--json"]),
    ],
)
def test_a_tab_completes_commands_arguments_and_options(words: str, expected: list[str]) -> None:
    position = str(len(words.split()) - 1)
    done = process(_REPRIEVE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=position)
    assert done.stdout.split() == expected
