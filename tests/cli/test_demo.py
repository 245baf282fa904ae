"""`reprieve demo` and `reprieve simulate`, as a person runs them."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

from click.testing import CliRunner

from reprieve.cli.simulate import simulate
from reprieve.clock import ticks


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


def processes_of(folder: Path) -> set[int]:
    """Return the processes whose environment names the folder."""
    found = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in environ.read_bytes():
                found.add(int(environ.parent.name))
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = ticks() + 60
    while not condition():
        assert ticks() < deadline
        Event().wait(0.05)


def test_the_demo_leaves_no_worker_behind_when_it_is_killed(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "reprieve", "demo"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # The demo, the supervisor of its worker, and two children.
        wait_until(lambda: len(processes_of(tmp_path)) == 4)
        demo.kill()
        demo.wait()
        wait_until(lambda: not processes_of(tmp_path))
    finally:
        for process in processes_of(tmp_path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def test_the_simulation_shows_that_park_saves_what_backoff_alone_loses() -> None:
    played = CliRunner().invoke(simulate, ["--jobs", "2000", "--seed", "3"])
    rows = {line.split("│")[1].strip(): line.split("│") for line in played.output.splitlines() if line.count("│") == 6}
    done, dead = 3, 4
    for lossy in ("swift", "smtp", "email", "bull"):
        assert (rows[lossy][done].strip(), rows[lossy][dead].strip()) == ("0", "2,000")
    assert (rows["email + Park"][done].strip(), rows["email + Park"][dead].strip()) == ("2,000", "0")
    assert float(rows["email + Park"][2]) <= 1.10
    assert "█" in played.output
