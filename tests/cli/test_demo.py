"""`reprieve demo` and `reprieve simulate`, as a person runs them."""

import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from reprieve.cli.simulate import simulate


def reprieve(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "reprieve", *arguments],
        capture_output=True,
        check=False,
        timeout=120,
        cwd=folder,
        text=True,
    )


def test_the_demo_loses_nothing_doubles_nothing_and_prints_plain_lines(tmp_path: Path) -> None:
    played = reprieve("demo", "--jobs", "120", "--seed", "3", folder=tmp_path)
    lines = re.findall(r"^ +(\d+)   (\D.*)$", played.stdout, re.MULTILINE)
    figures = {meaning.strip(): int(count) for count, meaning in lines}

    assert played.returncode == 0, played.stdout + played.stderr
    assert figures["succeeded"] == 120
    assert (figures["lost"], figures["doubled"], figures["dead"]) == (0, 0, 0)
    assert figures["were dead and succeeded after a manual retry"] == 3
    assert figures["waited for the provider without using up an attempt"] > 0
    assert "kill -9" in played.stdout
    assert "gate held" in played.stdout
    assert "\x1b" not in played.stdout
    assert played.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_simulation_shows_that_park_saves_what_backoff_alone_loses() -> None:
    played = CliRunner().invoke(simulate, ["--jobs", "2000", "--seed", "3"])
    rows = {line.split("│")[1].strip(): line.split("│") for line in played.output.splitlines() if line.count("│") == 6}
    done, dead = 3, 4
    for lossy in ("swift", "smtp", "email", "bull"):
        assert (rows[lossy][done].strip(), rows[lossy][dead].strip()) == ("0", "2,000")
    assert (rows["email + Park"][done].strip(), rows["email + Park"][dead].strip()) == ("2,000", "0")
    assert float(rows["email + Park"][2]) <= 1.10
    assert "█" in played.output
