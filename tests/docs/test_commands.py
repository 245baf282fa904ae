"""The commands in the documents run, and print what stands below them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from reprieve.cli.main import COMMANDS as CLI

ROOT = Path(__file__).parents[2]
PAGES = sorted(ROOT.glob("docs/**/*.md"))
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A file that the page tells its reader to save: its name on a line of its own, then a block."""

PROGRAMS = {"reprieve": [sys.executable, "-m", "reprieve"], "python": [sys.executable]}
UNWANTED = ("REPRIEVE_", "FORCE_COLOR", "PYTEST", "COV_")
"""How variables begin that a reader does not have."""

COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
PAGES_WITH_COMMANDS = [
    pytest.param(page, id=str(page.relative_to(ROOT)))
    for page in PAGES
    if any(block.startswith("$ ") for block in BLOCK.findall(page.read_text("utf-8")))
]


def run(line: str, folder: Path) -> str:
    """Run a line of the shell; return what it prints on either stream. `reprieve` and `python` are those under test."""
    words = shlex.split(line)
    program = next(word for word in words if word in PROGRAMS)
    settings = dict(word.split("=", 1) for word in words[: words.index(program)])
    environ = {name: value for name, value in os.environ.items() if not name.startswith(UNWANTED)}
    done = subprocess.run(
        [*PROGRAMS[program], *words[words.index(program) + 1 :]],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**environ, **settings, "COLUMNS": "80"},
        timeout=120,
    )
    return "\n".join(text for text in map(str.rstrip, done.stdout.splitlines()) if text)


def pattern(expected: str) -> str:
    """Return what is printed as a pattern, in which … stands for anything."""
    return "(?s)" + re.escape(expected.strip("\n")).replace("…", ".*?")


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_every_command_prints_what_stands_below_it(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    for found in sorted([*FILE.finditer(text), *BLOCK.finditer(text)], key=lambda found: found.start()):
        if found.re is FILE:
            (tmp_path / found[1]).write_text(found[2], "utf-8")
            continue
        for line, expected in COMMAND.findall(found[1]):
            printed = run(line, tmp_path)
            assert re.fullmatch(pattern(expected), printed), f"$ {line}\n{printed}"


def test_the_reference_of_the_command_line_shows_every_command() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| \[`(\w+)`\]\(#\w+\) \| (.+) \|$", text, re.MULTILINE))
    assert listed == {name: entry.help for name, entry in CLI.items()}
    lines = [line for block in BLOCK.findall(text) for line, _ in COMMAND.findall(block)]
    assert {words[words.index("reprieve") + 1] for words in map(shlex.split, lines)} == set(CLI)
