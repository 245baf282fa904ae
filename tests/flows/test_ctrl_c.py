"""Ctrl-C at any moment ends a command without a traceback; the processes of a worker leave it to their supervisor."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from reprieve import Reprieve

INTERRUPTED = 130

APP = """
from reprieve import Reprieve

app = Reprieve("sqlite:///jobs.db")


@app.task(name="greet", result_ttl="1h")
def greet() -> None: ...
"""

INTERRUPT = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"

INTERRUPTING = """
import os, signal, sys


class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupting())
"""
"""Sends this process the signal of Ctrl-C while a module is imported."""

COMMAND = """
sys.argv = ["reprieve", "version"]
from reprieve.cli import main

main()
"""


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("module", ["reprieve.cli.main", "click", "reprieve.cli.group", "reprieve.cli.version"])
def test_ctrl_c_during_the_imports_of_a_command_shows_no_traceback(module: str, tmp_path: Path) -> None:
    ended = run("-c", INTERRUPTING.format(module=module) + COMMAND, folder=tmp_path)
    assert (ended.returncode, ended.stderr.strip()) == (INTERRUPTED, "")


@pytest.mark.parametrize(
    "command",
    [["worker", "shop:app"], ["enqueue", "--app", "shop:app", "greet"], ["jobs", "list", "--app", "shop:app"]],
)
def test_ctrl_c_during_the_import_of_the_app_shows_no_traceback(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(INTERRUPT, "utf-8")
    ended = run("-m", "reprieve", *command, folder=tmp_path)
    assert (ended.returncode, ended.stderr.strip()) == (INTERRUPTED, "")


def test_ctrl_c_while_a_child_starts_is_left_to_the_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text(textwrap.dedent(APP), "utf-8")
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING.format(module="reprieve.worker.worker"), "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Reprieve(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        job = app.task(name="greet", result_ttl="1h")(lambda: None).enqueue()
        worker = subprocess.Popen(
            [sys.executable, "-m", "reprieve", "worker", "shop:app", "--processes", "1"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            job.result(timeout=60)
        finally:
            worker.send_signal(signal.SIGINT)
            log = worker.communicate(timeout=60)[1]
    assert worker.returncode == 0
    assert "worker stopped" in log
    assert "Traceback" not in log
    assert "child died" not in log
