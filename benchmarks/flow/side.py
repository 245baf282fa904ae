"""A side: a system that is measured, and how its worker and its producer are started."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.flow.home import Place
from benchmarks.flow.track import FOLDER, URL

ROOT = Path(__file__).parents[2]
MODULES = "benchmarks.flow.sides"
LONGEST = 900.0
"""Seconds that a producer may take."""

PROCESSES = "{processes}"
"""Stands for their number in the command of a worker."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One system under measurement."""

    name: str
    environment: str = ""
    """The folder that `make` installs it in; none is our own."""
    program: str
    """The interpreter."""
    producer: tuple[str, ...]
    """What the interpreter runs to enqueue."""
    worker: tuple[str, ...]
    """What it runs to work: once, if this says how many processes there are to be, and else once for each of them."""
    several: tuple[str, ...] | None = None
    """The same for more than one process, where it is said otherwise."""
    environ: dict[str, str] = field(default_factory=dict)
    backlog: float = 1.0
    """Share of the backlog that it gets: a slower system needs fewer jobs for the same duration."""
    lacks: frozenset[str] = frozenset()
    """Measures that it cannot be measured by; `two` is two worker processes."""
    is_supervised: bool = False
    """Whether the process that starts the others is nothing but their supervisor."""

    @property
    def is_here(self) -> bool:
        """Whether its environment has been made."""
        return not self.environment or (ROOT / self.environment).exists()

    def ask(self, place: Place, word: str, **options: object) -> object:
        """Call the producer; return its result."""
        flags = [f"--{name}={value}" for name, value in options.items()]
        command = [self.program, *self.producer, word, *flags]
        run = subprocess.run(  # noqa: S603 - our own module
            command, cwd=ROOT, env=self.environ_in(place), stdout=subprocess.PIPE, check=True, timeout=LONGEST
        )
        return json.loads(run.stdout)

    def commands(self, processes: int) -> list[list[str]]:
        """Return the commands that start a worker."""
        words = self.several if processes > 1 and self.several else self.worker
        command = [self.program, *(word.replace(PROCESSES, str(processes)) for word in words)]
        return [command] if any(PROCESSES in word for word in words) else [command] * processes

    def environ_in(self, place: Place) -> dict[str, str]:
        """Return the environment of every process of a measurement."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REPRIEVE_")}
        return kept | {FOLDER: str(place.folder), URL: place.url, "REPRIEVE_URL": place.url} | self.environ


def _python(name: str, module: str, *worker: str, **options: Any) -> Side:  # noqa: ANN401 - those of Side
    """Return a side in Python, in the virtual environment of its peer."""
    return Side(
        name=name,
        environment=f".venv-{module}",
        program=str(ROOT / f".venv-{module}" / "bin" / "python"),
        producer=("-m", "benchmarks.flow.producer", f"{MODULES}.{module}"),
        worker=worker,
        **options,
    )


REPRIEVE = replace(
    _python(
        *("reprieve", "reprieve"),
        *("-m", "reprieve", "worker", f"{MODULES}.reprieve:app", "--processes", PROCESSES, "--log-level", "warning"),
    ),
    environment="",
    program=sys.executable,
    is_supervised=True,
)

THREADS = 1
"""Threads of huey at its best: more of them only wait for one another, at SQLite's one writer and the interpreter's
lock."""

_CONSUMER = ("-m", "huey.bin.huey_consumer", f"{MODULES}.huey.huey", "--quiet")


def _huey(threads: int) -> Side:
    """Return huey at its best. It polls every 2 ms, as ours does."""
    polling = ("--delay=0.002", "--max-delay=0.002", "--backoff=1")
    return _python(
        *("huey", "huey", *_CONSUMER, "--worker-type=thread", f"--workers={threads}", *polling),
        several=(*_CONSUMER, "--worker-type=process", f"--workers={PROCESSES}", *polling),
        backlog=0.5,
    )


_HUEY_AS_IT_COMES = _python(
    *("huey as it comes", "huey", *_CONSUMER),
    environ={"BENCH_DEFAULTS": "1"},
    backlog=0.5,
    lacks=frozenset({"two", "fails", "retry", "enqueue", "size"}),
)


def _looped(name: str, **options: Any) -> Side:  # noqa: ANN401 - those of Side
    """Return a side whose worker runs on the loop of ours."""
    return _python(name, name, "-m", "benchmarks.flow.loop", f"{MODULES}.{name}", **options)


_PGQUEUER = _looped("pgqueuer")
_PROCRASTINATE = _looped("procrastinate", backlog=0.1)
_CHANCY = _looped("chancy", backlog=0.5)
_SAQ = _looped("saq", backlog=0.2)

_CELERY = _python(
    *("celery", "celery", "-m", "celery", "--app", f"{MODULES}.celery", "worker", "--loglevel=CRITICAL"),
    *("--pool=threads", "--concurrency=8", "--without-gossip", "--without-mingle", "--without-heartbeat"),
    backlog=0.2,
)
_RQ = _python(
    *("rq", "rq", "-m", "rq.cli", "worker", "--config", f"{MODULES}.rq", "--worker-class", "rq.SimpleWorker"),
    *("--with-scheduler", "--quiet"),
    backlog=0.1,
)
_DRAMATIQ = _python(
    *("dramatiq", "dramatiq", "-m", "dramatiq", f"{MODULES}.dramatiq", f"--processes={PROCESSES}", "--threads=16"),
    environ={"dramatiq_queue_prefetch": "1000", "dramatiq_worker_timeout": "1"},
    backlog=0.3,
)
_ARQ = _looped("arq", backlog=0.2)
_TASKIQ = _python(
    *("taskiq", "taskiq", "-m", "taskiq", "worker", f"{MODULES}.taskiq:broker", f"--workers={PROCESSES}"),
    *("--max-async-tasks=200", "--log-level=CRITICAL"),
    backlog=0.2,
    lacks=frozenset({"retry"}),
)
_BULLMQ = _looped("bullmq", backlog=0.2)
_BULLMQ_ON_NODE = Side(
    name="bullmq on Node",
    environment=".node-bullmq",
    program="node",
    producer=("benchmarks/flow/sides/bullmq.cjs",),
    worker=("benchmarks/flow/sides/bullmq.cjs", "work"),
    environ={"NODE_PATH": str(ROOT / ".node-bullmq" / "node_modules")},
)

PEERS: dict[str, tuple[Side, ...]] = {
    "sqlite": (_huey(THREADS), _HUEY_AS_IT_COMES),
    "postgres": (_PGQUEUER, _PROCRASTINATE, _CHANCY, _SAQ),
    "redis": (_CELERY, _RQ, _DRAMATIQ, _ARQ, _SAQ, _TASKIQ, _BULLMQ, _BULLMQ_ON_NODE),
}
"""Whom we are measured beside, on each kind of store."""


def sides(home: str, names: Sequence[str] = (), threads: int = THREADS) -> list[Side]:
    """Return the sides that are measured on a kind of store, ourselves first: those of these names, or all."""
    known = (REPRIEVE, *(_huey(threads) if peer.name == "huey" else peer for peer in PEERS[home]))
    if unknown := set(names) - {side.name for side in known}:
        message = f"there is no side {', '.join(sorted(unknown))}; they are {', '.join(side.name for side in known)}"
        raise ValueError(message)
    return [side for side in known if not names or side.name in names]
