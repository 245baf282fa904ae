"""A real PostgreSQL server for the tests: found, started in a temporary folder, and stopped by its own id.

REPRIEVE_TEST_POSTGRES names a server that runs already; every test makes schemas of its own in it.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

PATIENCE = 30.0
"""Seconds for which a server may take to start, and to stop."""

UNPRIVILEGED = ("postgres", "nobody")
"""Who runs the server when we are root, which PostgreSQL refuses."""

LOCKED_OUT = "bea"
"""The one user who needs a password."""

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_wal_size": "2GB",
}


class PostgresMissing(Exception):
    """There is no PostgreSQL to test with."""


@contextmanager
def running() -> Iterator[str]:
    """Answer the URL of a server: the one that the environment names, or one of our own for as long as this lasts."""
    named = os.environ.get("REPRIEVE_TEST_POSTGRES")
    if named:
        yield named
        return
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="reprieve-postgres-"))
    try:
        server, url = _start(binaries, folder)
        try:
            yield url
        finally:
            # At once: nobody will read what it might still write.
            server.send_signal(signal.SIGQUIT)
            server.wait(PATIENCE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    """Find PostgreSQL on the PATH or where Debian keeps it, or install it where we may."""
    found = _find()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-qq", "postgresql"], check=False, capture_output=True)
        found = _find()
    if found is None:
        message = "PostgreSQL is not installed; apt-get install postgresql, or name a server in REPRIEVE_TEST_POSTGRES"
        raise PostgresMissing(message)
    return found


def _find() -> Path | None:
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    kept = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    return kept[-1].parent if kept else None


def _start(binaries: Path, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    user = _unprivileged(folder)
    data = folder / "data"
    initdb: list[str | Path] = [
        binaries / "initdb",
        "-D",
        data,
        "-U",
        "reprieve",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "-N",
    ]
    subprocess.run(initdb, check=True, capture_output=True, user=user, cwd=folder)
    access = data / "pg_hba.conf"
    access.write_text(f"host all {LOCKED_OUT} all scram-sha-256\n{access.read_text()}")
    port = _free_port()
    settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [binaries / "postgres", "-D", data, "-p", str(port), *settings],
            stdout=log,
            stderr=log,
            user=user,
            cwd=folder,
            start_new_session=True,
        )
    url = f"postgresql://reprieve@127.0.0.1:{port}/postgres"
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                server.kill()
                raise PostgresMissing((folder / "log").read_text()) from None
            # The server says when it is ready only to its log.
            threading.Event().wait(0.05)
        else:
            return server, url


def _unprivileged(folder: Path) -> str | None:
    """Give the folder to somebody who may run a server; None is ourselves."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED:
        try:
            shutil.chown(folder, name)
        except LookupError:
            continue
        return name
    message = f"PostgreSQL refuses to run as root, and none of the users {', '.join(UNPRIVILEGED)} exists"
    raise PostgresMissing(message)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
