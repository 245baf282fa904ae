"""Servers of tests end with the tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.fleet import is_alive
from tests.servers.guard import ROOT

PROGRAM = """
import os, signal
from tests.servers import {name}
signal.signal(signal.SIGQUIT, signal.SIG_IGN)
with {name}.own() as server:
    print(server.folder, server.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["postgres", "redis"])
def test_a_server_ends_with_the_process_that_started_it_and_was_killed(name: str) -> None:
    program = PROGRAM.format(name=name)
    killed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    folder, pid = killed.stdout.split()
    # Its output is ours as well: when the guard has ended, it is over. It was, or `run` would not have returned.
    assert not is_alive(int(pid))
    assert not Path(folder).exists()
