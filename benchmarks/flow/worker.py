"""A worker of some side, as a real process, and how fast it is while it works."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.flow import processor
from benchmarks.flow.home import Place
from benchmarks.flow.side import ROOT, Side
from benchmarks.flow.track import counted

LOOK_EVERY = 0.01
START = 60.0
"""Seconds for the first job to run."""

WINDOW = 12.0
"""Seconds that a rate is measured for at the most."""

MERCY = 10.0


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast a worker went, and what it cost: microseconds of processor time an attempt; None where unknown."""

    rate: float
    jobs_cost: float | None
    supervisor_cost: float | None


class Worker:
    """A worker that runs."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], folder: Path, *, is_supervised: bool) -> None:
        """Take its processes, and the folder that its jobs count in."""
        self._processes = processes
        self._is_supervised = is_supervised
        self._folder = folder

    @property
    def pid(self) -> int:
        """The number of its first process."""
        return self._processes[0].pid

    def wait_for(self, count: int, at_most: float = START) -> None:
        """Wait until so many attempts have run."""
        if not self._look(lambda: counted(self._folder) >= count, at_most):
            message = f"only {counted(self._folder)} of {count} attempts ran in {at_most:g} s:\n{self._log()}"
            raise TimeoutError(message)

    def wait_until(self, is_done: Callable[[], bool], at_most: float) -> bool:
        """Wait for something; return whether it came."""
        return self._look(is_done, at_most)

    def pace(self, count: int) -> Pace:
        """Measure from a tenth of so many attempts to nine tenths, or for as long as a window is."""
        self.wait_for(count // 10)
        before = self._sample()
        self._look(lambda: counted(self._folder) >= count * 9 // 10, WINDOW)
        after = self._sample()
        attempts = after[1] - before[1]
        if not attempts:
            message = f"nothing ran:\n{self._log()}"
            raise TimeoutError(message)
        return Pace(
            rate=attempts / (after[0] - before[0]),
            jobs_cost=_cost(before[2], after[2], attempts),
            supervisor_cost=_cost(before[3], after[3], attempts),
        )

    def _sample(self) -> tuple[float, int, float | None, float | None]:
        started, children = processor.seconds(*(process.pid for process in self._processes))
        if not self._is_supervised and started is not None:
            children, started = started + (children or 0.0), None
        return time.perf_counter(), counted(self._folder), children, started

    def _look(self, is_done: Callable[[], bool], at_most: float) -> bool:
        until = time.monotonic() + at_most
        while not is_done():
            for process in self._processes:
                if process.poll() is not None:
                    message = f"the worker has ended with status {process.returncode}:\n{self._log()}"
                    raise RuntimeError(message)
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_EVERY)  # noqa: TID251 - the wait is real
        return True

    def _log(self) -> str:
        return (self._folder / "worker.log").read_text("utf-8", "replace")[-2_000:]


@contextlib.contextmanager
def working(side: Side, place: Place, processes: int = 1) -> Iterator[Worker]:
    """Run a worker, and end it with everything that it has started."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        with (place.folder / "worker.log").open("wb") as log:
            for command in side.commands(processes):
                process = subprocess.Popen(  # noqa: S603 - a worker is what we measure
                    command,
                    cwd=ROOT,
                    env=side.environ_in(place),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                started.append(process)
        yield Worker(started, place.folder, is_supervised=side.is_supervised)
    finally:
        for process in started:
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(MERCY)
            # The group is ours alone: whatever of it is left ends now.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _cost(before: float | None, after: float | None, attempts: int) -> float | None:
    return None if before is None or after is None else (after - before) / attempts * 1e6
