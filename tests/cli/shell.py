"""Running the command line: in this process, or as a person does."""

import json
import os
import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from reprieve.cli import main


def reprieve(*arguments: str, status: int = 0, **settings: Any) -> Result:  # noqa: ANN401 - whatever the runner takes
    """Run a command that must end with this status, and never with a traceback."""
    result = CliRunner().invoke(main, arguments, **settings)
    assert result.exit_code == status, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def answer(*arguments: str, status: int = 0, **settings: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Run a command with --json, and read its one document."""
    result = reprieve(*arguments, "--json", status=status, **settings)
    assert "\x1b" not in result.stdout
    return json.loads(result.stdout)


def complaint(*arguments: str, status: int) -> str:
    """Run a command that must fail, and answer its one line."""
    result = reprieve(*arguments, status=status)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def process(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "reprieve", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environ},
    )
