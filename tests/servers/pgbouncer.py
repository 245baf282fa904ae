"""A real PgBouncer in front of a real PostgreSQL, that pools transactions: no two need to be of one session."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.guard import Guard
from tests.servers.ports import free_port, unprivileged
from tests.servers.postgres import answers
from tests.servers.program import PATIENCE, PGBOUNCER, find, wait_until_ready

POOL = 4
"""Sessions of the server that all share."""


@contextmanager
def running(server: str) -> Iterator[str]:
    """Return the URL of a pooler in front of a server, for as long as this lasts."""
    binary = find(PGBOUNCER)
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
            wait_until_ready(lambda: answers(url), process, folder / "log")
            yield url
        finally:
            process.terminate()
            process.wait(PATIENCE)
