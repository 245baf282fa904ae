"""Ports are given once, whichever process asks."""

import socket
import subprocess
import sys
from pathlib import Path

from tests.servers.ports import _SIGNS, FIRST, LAST, free_port
from tests.servers.redis import BUS

ROOT = Path(__file__).parents[2]
ASK = "import sys; from tests.servers.ports import free_port; print(free_port(), flush=True); sys.stdin.read()"


def test_no_two_are_given_the_same_port_even_before_they_listen() -> None:
    command = [sys.executable, "-c", ASK]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        ours = [free_port() for _ in range(20)]
        other.communicate()
    assert len({theirs, *ours}) == 21


def test_ports_are_none_that_clients_are_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        port = given.getsockname()[1]
    assert not FIRST <= port < LAST + BUS
    assert FIRST <= free_port(BUS) < LAST


def test_port_in_use_is_left_out() -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        # From here on only the listener keeps others from it, and no other process can have been given it meanwhile.
        _SIGNS.pop().close()
        given = [free_port()]
        while given[-1] < taken:
            given.append(free_port())
    assert taken not in given
