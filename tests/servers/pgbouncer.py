"""A real PgBouncer in front of a real PostgreSQL, that pools transactions: no two need to be of one session."""

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.servers.guard import Guard
from tests.servers.ports import free_port, unprivileged

PATIENCE = 30.0
POOL = 4
"""Sessions of the server that all share."""

PLACES = "/usr/sbin:/usr/local/sbin"


class PgbouncerMissing(Exception):
    """There is no PgBouncer to test with."""


@contextmanager
def running(server: str) -> Iterator[str]:
    """Answer the URL of a pooler in front of a server, for as long as this lasts."""
    binary = _binary()
    folder = Path(tempfile.mkdtemp(prefix="reprieve-pgbouncer-"))
    with Guard(folder):
        user, port, parts = unprivileged(folder), free_port(), urlsplit(server)
        settings = folder / "settings.ini"
        settings.write_text(
            f"""
            [databases]
            * = host={parts.hostname} port={parts.port} user={parts.username}
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = {port}
            unix_socket_dir =
            auth_type = any
            pool_mode = transaction
            default_pool_size = {POOL}
            max_client_conn = 500
            pidfile = {folder}/pooler.pid
            """
        )
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen([binary, settings], user=user, cwd=folder, stdout=log, stderr=log)
        url = f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}"
        try:
            _await(url, process, folder / "log")
            yield url
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise PgbouncerMissing(log.read_text()) from None
            # It says when it is ready only to its log.
            threading.Event().wait(0.05)
        else:
            return


def _binary() -> str:
    """Find PgBouncer, or install it where we may."""
    for words in ([], ["install", "pgbouncer"], ["update"], ["install", "pgbouncer"]):
        if words and os.geteuid() == 0 and shutil.which("apt-get"):
            subprocess.run(["apt-get", "-y", "-qq", *words], check=False, capture_output=True)
        found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:{PLACES}")
        if found:
            return found
    message = "PgBouncer is not installed; apt-get install pgbouncer"
    raise PgbouncerMissing(message)
