"""Real Redis servers for the tests: one, a Cluster with or without replicas, or a group with Sentinels.

They run on free loopback ports in temporary folders, and end with the process that started them, however that ends.
REPRIEVE_TEST_REDIS names a single server that runs already.
"""

import itertools
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import redis

from tests.servers.gateway import Gateway
from tests.servers.guard import Guard
from tests.servers.ports import free_port
from tests.servers.program import PATIENCE, REDIS, find, wait_until_ready

BUS = 10_000
"""How far above its port a server of a Cluster listens to the others."""

SLOTS = 16_384
"""Into which a Cluster divides its keys."""

SAFE = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",
    "save": "",
    "repl-diskless-sync-delay": "0",
}
"""What a server of jobs is set to, and that it does not wait for more replicas before it serves the first."""


CLUSTERED = {
    "cluster-enabled": "yes",
    "cluster-config-file": "nodes.conf",
    "cluster-node-timeout": "2000",
    "cluster-replica-validity-factor": "0",
}
"""What a server of a Cluster is set to besides. A replica that was cut off for long takes over all the same."""


REPLICATION, WATCHING = "internal-replica", "internal-sentinel"
"""Users, and passwords, of replicas and Sentinels: a connection of either begins with its name."""


def is_internal(first: bytes) -> bool:
    """Whether a connection that begins so is one of a replica or a Sentinel."""
    return b"internal-" in first


class Server:
    """A server in a folder of its own, that can be killed and started again."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None, *, role: str = "redis-server") -> None:
        """Choose a port, and start nothing yet."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port(BUS)
        self.settings = SAFE | (settings or {}) if role == "redis-server" else settings or {}
        self._role = role
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of a store on this server."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        configuration = self.folder / "server.conf"
        if not configuration.exists() or self._role == "redis-server":
            facts = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder)} | self.settings
            lines = [
                f'{name} "{value}"' if name in ("save", "dir") else f"{name} {value}" for name, value in facts.items()
            ]
            configuration.write_text("\n".join(lines) + "\n")
        command = [find(REDIS), configuration]
        log = self.folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "--sentinel"] if self._role == "sentinel" else command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._pidfile.write_text(str(self.pid))
        wait_until_ready(self._answers, self._process, log)
        return self

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def _pidfile(self) -> Path:
        return self.folder / "server.pid"

    def _answers(self) -> bool:
        """Whether it answers and has read its data."""
        try:
            with self.client() as client:
                client.ping()
        except redis.AuthenticationError:
            return True  # if only to say that it does not know us
        except (redis.ConnectionError, redis.exceptions.BusyLoadingError, redis.TimeoutError):
            return False
        return True

    def client(self) -> redis.Redis:
        """Return a client of its own."""
        password = self.settings.get("requirepass")
        return redis.Redis(port=self.port, password=password, protocol=2, socket_timeout=10)

    def wait_for_save(self) -> None:
        """Wait until it has saved, or failed to."""
        with self.client() as client:
            _until(lambda: not client.info("persistence")["rdb_bgsave_in_progress"])

    def wait_for_primary(self) -> None:
        """Wait until it has everything that its primary has."""
        with self.client() as client:
            _until(lambda: client.info("replication").get("master_link_status") == "up")

    def wait_for_replica(self) -> None:
        """Wait until it knows of a replica that has everything."""
        with self.client() as client:
            _until(lambda: client.execute_command("ROLE")[2])

    def wait_for_no_replica(self) -> None:
        """Wait until it knows of no replica any more."""
        with self.client() as client:
            _until(lambda: not client.execute_command("ROLE")[2])

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Stop it at once, as a crash would: nothing is written any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._pidfile.unlink()
            self._process = None


@contextmanager
def running() -> Iterator[str]:
    """Return the URL of a server: the one that the environment names, or one of our own for as long as this lasts."""
    named = os.environ.get("REPRIEVE_TEST_REDIS")
    if named:
        yield named
        return
    with own() as server:
        yield server.url


@contextmanager
def own(**settings: str) -> Iterator[Server]:
    """Return a server of our own, for as long as this lasts."""
    with _folder() as folder:
        server = Server(folder, _spelled(settings))
        try:
            yield server.start()
        finally:
            server.kill()


class Cluster:
    """Masters that share the slots, and replicas of each."""

    def __init__(self, folder: Path, masters: int, replicas: int, settings: dict[str, str]) -> None:
        """Choose ports."""
        settings = CLUSTERED | settings
        self.masters = [Server(folder / f"master-{number}", settings) for number in range(masters)]
        self.replicas = [
            [Server(folder / f"replica-{number}-{place}", settings) for place in range(replicas)]
            for number in range(masters)
        ]
        self.servers = [*self.masters, *itertools.chain(*self.replicas)]

    @property
    def url(self) -> str:
        """The URL of a store that is told of every server."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{server.port}' for server in self.servers)}"

    def start(self) -> Self:
        """Start all of them, and wait until they know each other."""
        for epoch, server in enumerate(self.servers, start=1):
            server.start()
            # Servers with equal epochs raise them later on; a primary that does so during a takeover wins against it.
            with server.client() as client:
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for number, server in enumerate(self.masters):
            first, last = (place * SLOTS // len(self.masters) for place in (number, number + 1))
            with server.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTS", *range(first, last))
        for server in self.servers[1:]:
            with server.client() as client:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
        for server in self.servers:
            _until(lambda server=server: self._knows_all(server))
            _until(lambda server=server: int(self._info(server)["cluster_current_epoch"]) == len(self.servers))
        for master, replicas in zip(self.masters, self.replicas, strict=True):
            for replica in replicas:
                self._follow(master, replica)
        for server in self.servers:
            _until(lambda server=server: self._info(server)["cluster_state"] == "ok")
            # A master that does not know whose replica asks for its vote denies it.
            _until(lambda server=server: self._knows_replicas(server))
        return self

    def _follow(self, master: Server, replica: Server) -> None:
        with master.client() as client:
            name = client.execute_command("CLUSTER", "MYID")
        with replica.client() as client:
            client.execute_command("CLUSTER", "REPLICATE", name)
        replica.wait_for_primary()

    @staticmethod
    def _info(server: Server) -> dict[str, str]:
        with server.client() as client:
            info = client.execute_command("CLUSTER", "INFO")
        return info if isinstance(info, dict) else dict(line.split(":") for line in info.decode().split())

    def _knows_all(self, server: Server) -> bool:
        return int(self._info(server)["cluster_known_nodes"]) == len(self.servers)

    def _knows_replicas(self, server: Server) -> bool:
        with server.client() as client:
            ranges = client.execute_command("CLUSTER", "SLOTS")
        return sum(len(nodes) for _, _, *nodes in ranges) == len(self.servers)

    def place_of(self, tag: str) -> int:
        """Return the number of the master that a hash tag was first given to."""
        with self.masters[0].client() as client:
            slot = int(client.execute_command("CLUSTER", "KEYSLOT", tag))
        return next(number for number in range(len(self.masters)) if slot < (number + 1) * SLOTS // len(self.masters))

    def wait_for_failover(self, number: int) -> Server:
        """Wait until a replica of a master has taken its place; answer it."""

        def heirs() -> list[Server]:
            return [replica for replica in self.replicas[number] if is_primary(replica)]

        _until(heirs)
        return heirs()[0]

    def kill(self) -> None:
        """End all of them."""
        for server in self.servers:
            server.kill()


def is_primary(server: Server) -> bool:
    """Whether a server is the primary of its data."""
    with server.client() as client:
        return bool(client.info("replication")["role"] == "master")


@contextmanager
def cluster(masters: int = 3, replicas: int = 0, **settings: str) -> Iterator[Cluster]:
    """Return a Cluster, for as long as this lasts."""
    with _folder() as folder:
        cluster = Cluster(folder, masters, replicas, _spelled(settings))
        try:
            yield cluster.start()
        finally:
            cluster.kill()


NO_FAILOVER_MS = 60_000
"""How long a primary must be silent to be replaced, where a test wants no failover, however busy the machine is."""


class SentinelGroup:
    """A primary, its replicas, and three Sentinels. All of them reach the first primary through a gateway.

    `partition` silences what the others send to it and get from it, while clients still reach both sides.
    """

    def __init__(self, folder: Path, replicas: int, settings: dict[str, str], down_after_ms: int) -> None:
        """Choose ports."""
        users = {f"user {name}": f"on >{name} ~* &* +@all" for name in (REPLICATION, WATCHING)}
        settings = {"masteruser": REPLICATION, "masterauth": REPLICATION} | users | settings
        self.primary = Server(folder / "primary", settings)
        self.gateway = Gateway(self.primary.port, is_internal)
        self.primary.settings["replica-announce-port"] = str(self.gateway.port)
        settings |= {"replicaof": f"127.0.0.1 {self.gateway.port}"}
        self.replicas = [Server(folder / f"replica-{number}", settings) for number in range(replicas)]
        watched = {
            "sentinel monitor jobs": f"127.0.0.1 {self.gateway.port} 2",
            "sentinel auth-user jobs": WATCHING,
            "sentinel auth-pass jobs": WATCHING,
            "sentinel down-after-milliseconds jobs": str(down_after_ms),
            "sentinel failover-timeout jobs": "5000",
        }
        self.sentinels = [Server(folder / f"sentinel-{number}", watched, role="sentinel") for number in range(3)]

    @property
    def url(self) -> str:
        """The URL of a store that asks the Sentinels, and does not ask the servers for enough replicas."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/jobs?min_replicas=0"

    def start(self) -> Self:
        """Start all of them, and wait until they know each other."""
        self.gateway.start()
        self.primary.start()
        for replica in self.replicas:
            replica.start()
            replica.wait_for_primary()
        for sentinel in self.sentinels:
            sentinel.start()
        for sentinel in self.sentinels:
            _until(lambda sentinel=sentinel: self._others(sentinel) == (len(self.replicas), len(self.sentinels) - 1))
        return self

    def _others(self, sentinel: Server) -> tuple[int, int]:
        with sentinel.client() as client:
            state = client.sentinel_master("jobs")
        return state["num-slaves"], state["num-other-sentinels"]

    def wait_for_failover(self) -> Server:
        """Wait until a replica has become the primary; return it."""
        _until(lambda: any(map(is_primary, self.replicas)))
        return next(filter(is_primary, self.replicas))

    def kill(self) -> None:
        """End all of them."""
        for server in (*self.sentinels, *self.replicas, self.primary):
            server.kill()
        self.gateway.close()


@contextmanager
def sentinel_group(replicas: int = 1, down_after_ms: int = 500, **settings: str) -> Iterator[SentinelGroup]:
    """Return servers with Sentinels, for as long as this lasts; a primary that is silent for so long is replaced."""
    with _folder() as folder:
        group = SentinelGroup(folder, replicas, _spelled(settings), down_after_ms)
        try:
            yield group.start()
        finally:
            group.kill()


def _spelled(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in settings.items()}


def _until(condition: object) -> None:
    deadline = time.monotonic() + PATIENCE
    assert callable(condition)
    while not condition():
        assert time.monotonic() < deadline, "the servers did not come to terms"
        threading.Event().wait(0.05)


@contextmanager
def _folder() -> Iterator[Path]:
    """Return a folder whose servers end with this process in any case."""
    folder = Path(tempfile.mkdtemp(prefix="reprieve-redis-"))
    with Guard(folder):
        yield folder
