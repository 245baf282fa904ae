"""The files of deploy/ and the page about them fit the worker: its signals, its times, its options."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from reprieve.cli.worker import worker
from reprieve.config import Settings
from reprieve.core.duration import seconds
from reprieve.stores.postgres import pool
from reprieve.worker import recovery, sessions
from tests.docs.page import code, table, text_of

PAGE = text_of("docs/operate/deploy.md")
UNIT = text_of("deploy/systemd/reprieve-worker.service")
DOCKERFILE = text_of("deploy/Dockerfile")
COMPOSE = text_of("deploy/compose.yaml")
NEEDED_TO_STOP = Settings().grace + sessions.KILL_AFTER_SECONDS


def value(text: str, name: str) -> str:
    (found,) = re.findall(rf"^\s*{name}[=:] ?(.+)$", text, re.MULTILINE)
    return str(found)


def parsed(words: list[str]) -> dict[str, object]:
    """Return the options of `reprieve worker …`, as the command line reads them."""
    assert words[0] == "worker"
    return worker.make_context("worker", words[1:]).params


def test_service_managers_wait_until_the_worker_has_stopped() -> None:
    assert seconds(value(UNIT, "TimeoutStopSec")) >= NEEDED_TO_STOP + 5
    of_the_worker = COMPOSE.partition("  worker:")[2].partition("\n  db:")[0]
    assert seconds(value(of_the_worker, "stop_grace_period")) >= NEEDED_TO_STOP + 5


def test_the_supervisor_alone_is_told_to_stop() -> None:
    assert value(UNIT, "KillMode") == "mixed"
    assert value(UNIT, "KillSignal") == value(COMPOSE, "stop_signal") == "SIGTERM"
    assert "\nSTOPSIGNAL SIGTERM\n" in DOCKERFILE


def test_the_commands_are_those_of_the_command_line() -> None:
    program, *words = shlex.split(value(UNIT, "ExecStart"))
    assert program.endswith("/bin/reprieve")
    (entry,) = re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE)
    (command,) = re.findall(r"^CMD (.+)$", DOCKERFILE, re.MULTILINE)
    assert json.loads(entry) == ["reprieve"]
    for options in (parsed(words), parsed(json.loads(command))):
        assert "shop.jobs:app" in options.values()
        assert options["log_style"] == "json"


def test_the_image_does_not_run_as_root() -> None:
    lines = DOCKERFILE.splitlines()
    assert lines.index("USER app") < next(number for number, line in enumerate(lines) if line.startswith("ENTRYPOINT"))


def test_every_line_that_the_page_explains_is_in_a_file() -> None:
    systemd, docker = PAGE.partition("## Docker")[0], PAGE.partition("## Docker")[2]
    for row in table(systemd, "line"):
        assert code(row["line"])[0] in UNIT
    for row in table(docker, "line"):
        assert code(row["line"])[0] in DOCKERFILE + COMPOSE


def test_systemd_understands_the_unit_where_it_is_installed(tmp_path: Path) -> None:
    names = re.findall(r"^\[(\w+)\]$", UNIT, re.MULTILINE)
    assert names == ["Unit", "Service", "Install"]
    verify = shutil.which("systemd-analyze")
    if verify is not None:
        unit = tmp_path / "reprieve-worker.service"
        text = UNIT.replace("/srv/shop/.venv/bin/reprieve", sys.executable).replace("/srv/shop", str(tmp_path))
        unit.write_text(text.replace("User=shop", "DynamicUser=yes"))
        done = subprocess.run([verify, "verify", str(unit)], capture_output=True, text=True, check=False)
        assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_every_number_is_that_of_the_code() -> None:
    for text, number in (
        ("the grace of 30 s and the 5 s after it", (Settings().grace, sessions.KILL_AFTER_SECONDS) == (30, 5)),
        (
            "after the lease, 15 s,\nand at most 2 s more",
            Settings().lease == 15 and recovery.RECOVERY_INTERVAL_SECONDS <= 2,
        ),
        ("nine connections: eight for work", pool.MAX_CONNECTIONS == 8),
        ("Idle connections close after a\nminute", pool.MAX_IDLE_SECONDS == 60),
    ):
        assert text in PAGE
        assert number, text
