"""A side: whoever is measured, and how its worker and its producer are started."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.flow.home import Place
from benchmarks.flow.track import FOLDER, URL

ROOT = Path(__file__).parents[2]
HUEY = ROOT / ".venv-huey" / "bin" / "python"
LONGEST = 900.0
"""Seconds that a producer may take."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One system under measurement."""

    name: str
    python: Path
    producer: str
    worker: tuple[str, ...]
    """What the interpreter runs; `{processes}` stands for their number."""
    several: tuple[str, ...] | None = None
    """The same for more than one process, where it is said otherwise."""
    environ: dict[str, str] = field(default_factory=dict)
    backlog: float = 1.0
    """Share of the backlog that it is given: who is slower needs less for as long a look."""
    measures: frozenset[str] | None = None
    """What it is measured by; None is everything."""

    @property
    def environment(self) -> str:
        """The folder of its virtual environment."""
        return self.python.parents[1].name

    def ask(self, place: Place, word: str, **options: object) -> object:
        """Let the producer do something, and answer what it found."""
        flags = [f"--{name}={value}" for name, value in options.items()]
        command = [str(self.python), "-m", self.producer, word, *flags]
        run = subprocess.run(  # noqa: S603 - our own module
            command, cwd=ROOT, env=self.environ_in(place), stdout=subprocess.PIPE, check=True, timeout=LONGEST
        )
        return json.loads(run.stdout)

    def command(self, processes: int) -> list[str]:
        """Answer the command that starts a worker."""
        words = self.several if processes > 1 and self.several else self.worker
        return [str(self.python), *(word.format(processes=processes) for word in words)]

    def environ_in(self, place: Place) -> dict[str, str]:
        """Answer the environment of every process of a measurement."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REPRIEVE_")}
        return kept | {FOLDER: str(place.folder), URL: place.url, "REPRIEVE_URL": place.url} | self.environ


CONSUMER = ("-m", "huey.bin.huey_consumer", "benchmarks.flow.huey_jobs.huey", "--quiet")

REPRIEVE = Side(
    name="reprieve",
    python=Path(sys.executable),
    producer="benchmarks.flow.reprieve_producer",
    worker=(
        *("-m", "reprieve", "worker", "benchmarks.flow.reprieve_jobs:app"),
        *("--processes", "{processes}", "--log-level", "warning"),
    ),
)

THREADS = 1
"""Threads of huey at its best: more of them only wait for one another, at SQLite's one writer and the interpreter's
lock."""


def huey(threads: int = THREADS) -> Side:
    """Answer huey at its best. It looks for jobs every 2 ms, as our bell does."""
    looks = ("--delay=0.002", "--max-delay=0.002", "--backoff=1")
    return Side(
        name="huey",
        python=HUEY,
        producer="benchmarks.flow.huey_producer",
        worker=(*CONSUMER, "--worker-type=thread", f"--workers={threads}", *looks),
        several=(*CONSUMER, "--worker-type=process", "--workers={processes}", *looks),
        backlog=0.5,
    )


HUEY_AS_IT_COMES = Side(
    name="huey as it comes",
    python=HUEY,
    producer="benchmarks.flow.huey_producer",
    worker=CONSUMER,
    environ={"BENCH_DEFAULTS": "1"},
    backlog=0.5,
    measures=frozenset({"process", "latency"}),
)


def sides(home: str, names: Sequence[str] = (), threads: int = THREADS) -> list[Side]:
    """Answer the sides that are measured on a kind of store, ourselves first: those of these names, or all."""
    known = (REPRIEVE, huey(threads), HUEY_AS_IT_COMES) if home == "sqlite" else (REPRIEVE,)
    if unknown := set(names) - {side.name for side in known}:
        message = f"there is no side {', '.join(sorted(unknown))}; they are {', '.join(side.name for side in known)}"
        raise ValueError(message)
    return [side for side in known if not names or side.name in names]
