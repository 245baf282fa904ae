"""A real PostgreSQL server for the tests: found, started in a temporary folder, and stopped by its own id.

REPRIEVE_TEST_POSTGRES names a server that runs already; every test makes schemas of its own in it.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from reprieve.clock import ticks
from tests.servers.guard import Guard
from tests.servers.ports import free_port, unprivileged
from tests.servers.program import PATIENCE, POSTGRESQL, find, wait_until_ready

LOCKED_OUT = "bea"
"""The one user who needs a password."""

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "max_prepared_transactions": "10",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_wal_size": "2GB",
}


class Server:
    """A server of our own, in a folder of its own, that can be killed and started again."""

    def __init__(self, folder: Path, primary: "Server | None" = None) -> None:
        """Make the cluster, empty or as a standby of another, and start nothing yet."""
        self._binaries = find(POSTGRESQL).resolve().parent
        self.folder = folder
        self._user = unprivileged(folder)
        self._data = folder / "data"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://reprieve@127.0.0.1:{self._port}/postgres"
        if primary is None:
            self._make()
        else:
            self._copy(primary)

    def _make(self) -> None:
        initdb: list[str | Path] = [
            self._binaries / "initdb",
            "-D",
            self._data,
            "-U",
            "reprieve",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "-N",
        ]
        subprocess.run([*initdb, "--locale=C"], check=True, capture_output=True, user=self._user, cwd=self.folder)
        access = self._data / "pg_hba.conf"
        access.write_text(f"host all {LOCKED_OUT} all scram-sha-256\n{access.read_text()}")

    def _copy(self, primary: "Server") -> None:
        copy: list[str | Path] = [
            self._binaries / "pg_basebackup",
            "-d",
            primary.url,
            "-D",
            self._data,
            "-R",
            "-c",
            "fast",
        ]
        subprocess.run(copy, check=True, capture_output=True, user=self._user, cwd=self.folder)

    @property
    def pid(self) -> int:
        """The number of its first process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        log = self.folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-p", str(self._port), *settings],
                stdout=output,
                stderr=output,
                user=self._user,
                cwd=self.folder,
                start_new_session=True,
            )
        wait_until_ready(lambda: answers(self.url), self._process, log)

    def kill(self) -> None:
        """Stop it at once, as a crash would: nothing is written any more."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE)

    def copy(self, name: str) -> None:
        """Copy everything that is stored while nothing runs, as a standby would have it."""
        subprocess.run(["cp", "-a", self._data, self.folder / name], check=True)

    def restore(self, name: str) -> None:
        """Let a copy take the place of what is stored while nothing runs."""
        shutil.rmtree(self._data)
        (self.folder / name).rename(self._data)


@contextmanager
def running() -> Iterator[str]:
    """Return the URL of a server: the one that the environment names, or one of our own for as long as this lasts."""
    named = os.environ.get("REPRIEVE_TEST_POSTGRES")
    if named:
        yield named
        return
    with own() as server:
        yield server.url


@contextmanager
def own(primary: Server | None = None) -> Iterator[Server]:
    """Return a server of our own, for as long as this lasts; it ends with this process in any case.

    With a primary it is a standby of that: it has the same rows, and can only be read.
    """
    folder = Path(tempfile.mkdtemp(prefix="reprieve-postgres-"))
    with Guard(folder):
        server = Server(folder, primary)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def drop_schema(server: str, name: str) -> None:
    """Drop a schema. A process that was killed there may have left a statement that goes on, which is ended."""
    others = (
        "select pg_terminate_backend(pid) from pg_locks join pg_class on pg_class.oid = relation "
        "where relnamespace = to_regnamespace(%s) and pid <> pg_backend_pid()"
    )
    until = ticks() + PATIENCE
    with psycopg.connect(server, autocommit=True) as admin:
        # Less than the server takes to see a deadlock.
        admin.execute("set lock_timeout = '300ms'")
        while True:
            try:
                admin.execute(f"drop schema if exists {name} cascade")
            except psycopg.errors.LockNotAvailable:
                if ticks() > until:
                    raise
                admin.execute(others, [name])
            else:
                return


def answers(url: str) -> bool:
    """Whether a server lets us in."""
    try:
        psycopg.connect(url, connect_timeout=10).close()
    except psycopg.OperationalError:
        return False
    return True
