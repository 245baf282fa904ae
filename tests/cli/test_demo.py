"""`reprieve demo`, as a person runs it."""

import subprocess
import sys

from click.testing import CliRunner

from reprieve.cli import main


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_demo_shows_that_park_saves_what_backoff_alone_loses() -> None:
    output = run("demo", "--jobs", "2000", "--seed", "3")
    rows = {line.split("│")[1].strip(): line.split("│") for line in output.splitlines() if line.count("│") == 6}
    done, dead = 3, 4
    for lossy in ("swift", "smtp", "email", "bull"):
        assert (rows[lossy][done].strip(), rows[lossy][dead].strip()) == ("0", "2,000")
    assert (rows["email + Park"][done].strip(), rows["email + Park"][dead].strip()) == ("2,000", "0")
    assert float(rows["email + Park"][2]) <= 1.10


def test_the_demo_shows_schedules_verdicts_and_a_plot() -> None:
    output = run("demo", "--jobs", "200")
    assert "1s, 5s, 25s" in output
    assert "smtp:4.7.1" in output
    assert "█" in output
    assert "down" in output


def test_without_a_terminal_the_demo_prints_plain_lines() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "reprieve", "demo", "--jobs", "50"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert b"\x1b" not in printed.stdout
    assert printed.stderr == b""
