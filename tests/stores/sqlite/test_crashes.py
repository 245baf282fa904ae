"""Crashes: workers and producers die at any moment, and nothing is lost, settled twice or counted wrong."""

import random
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from reprieve import clock
from reprieve.core import change
from reprieve.core.move import Return, Succeed
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import Claim, Filter, Heartbeat, LimitUpdate
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import PROGRAM, find_all
from tests.stores.sqlite.recount import complaints, stored_ids

ROOT = Path(__file__).parents[3]
ROLES = ("worker", "worker", "producer")
HOUR = 3_600_000
ENDS = ("Succeed", "Dead", "Cancel")


class Member:
    """One process of a crash test, with its log."""

    def __init__(self, role: str, path: Path, log: Path) -> None:
        self.role = role
        self.log = log
        self.errors = log.with_suffix(".errors")
        with self.errors.open("w") as errors:
            command = [sys.executable, "-m", "tests.stores.sqlite.crash_processes", role, str(path), str(log)]
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=errors)

    def live_for(self, seconds: float) -> None:
        """Let it work for so long; it must not end by itself."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        pytest.fail(f"a {self.role} ended by itself: {self.errors.read_text()}")

    def begin(self) -> None:
        """Wait until it is at work."""
        for _ in range(1_000):
            if self.log.exists() and self.log.stat().st_size:
                return
            self.live_for(0.02)
        pytest.fail(f"a {self.role} did not begin in 20 seconds")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Processes:
    """Some processes on one file, killed one at a time and replaced at once."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.path = folder / "jobs.db"
        self._folder = folder
        self._rng = rng
        self._numbers = count()
        self._members = [self._hire(role) for role in ROLES]

    def _hire(self, role: str) -> Member:
        return Member(role, self.path, self._folder / f"{next(self._numbers)}.log")

    def lose_one(self) -> None:
        """Kill a process at a random moment, sometimes before its work has begun."""
        place = self._rng.randrange(len(self._members))
        victim = self._members[place]
        if self._rng.random() < 0.9:
            victim.begin()
        victim.live_for(self._rng.uniform(0.0, 0.4))
        victim.kill()
        self._members[place] = self._hire(victim.role)

    def end(self) -> None:
        for member in self._members:
            member.kill()

    def lines(self, verb: str) -> list[list[str]]:
        """Return what the logs say; a line that a kill cut off says nothing."""
        found = []
        for log in sorted(self._folder.glob("*.log")):
            *whole, _cut = log.read_text().split("\n")
            found += [line.split()[1:] for line in whole if line.startswith(f"{verb} ")]
        return found


def check(processes: Processes) -> None:
    """Compare the file with itself, and with what the logs say was acknowledged."""
    acknowledged = {job for (job,) in processes.lines("enqueued")}
    assert complaints(processes.path) == []
    missing = acknowledged - stored_ids(processes.path)
    assert missing - intended_ends(processes) == set()
    starts = Counter((job, version) for job, version in processes.lines("started"))
    assert [start for start, times in starts.items() if times > 1] == []
    ends = Counter(job for job, _, move in processes.lines("settled") if move in ENDS)
    assert [job for job, times in ends.items() if times > 1] == []


async def check_orders(processes: Processes, store: SqliteStore) -> None:
    """Compare the producer's own rows with the jobs that were enqueued in the same transactions."""
    with closing(sqlite3.connect(processes.path)) as connection:
        orders = {job for (job,) in connection.execute("select job from shop_order")}
    stored = {job.id for job in await find_all(store, Filter(tasks=("deliver",)), clock.now(), limit=10_000)}
    assert orders
    assert stored <= orders
    assert orders - stored - intended_ends(processes) == set()


def intended_ends(processes: Processes) -> set[str]:
    """Return the jobs that may have succeeded: their row is kept for a while only."""
    return {job for job, _, move in processes.lines("intends") if move == "Succeed"}


async def drain(store: SqliteStore, now: int) -> None:
    """Take back what the dead hold, open every limiter, and let everything succeed."""
    while lost := await store.recover(now):
        await store.apply([change.settle(job, Return(crashed=True), now) for job in lost], now)
    opened = [
        LimitUpdate(subject=subject, name=limit_state.name, queue=limit_state.queue, permits=None, max_running=None)
        for subject in ("tenant", "group", "dependency")
        for limit_state in await all_limit_states(store, subject)
    ]
    await store.update_limits(opened, now, PROGRAM)
    await store.heartbeat(Heartbeat(session="last", now=now, lease=3_600, slots=10_000, is_new=True))
    jobs = (await store.claim(Claim(session="last", number=1, now=now, queues=("default",), limit=500))).jobs
    for number in count(2):
        if not jobs:
            return
        changes = tuple(change.settle(job, Succeed(), now) for job in jobs)
        claim = Claim(session="last", number=number, now=now, queues=("default",), limit=500, changes=changes)
        claimed = await store.claim(claim)
        assert set(claimed.results) == {"applied"}
        jobs = claimed.jobs


async def play(folder: Path, kills: int, seed: int) -> None:
    processes = Processes(folder, random.Random(seed))
    try:
        for kill in range(1, kills + 1):
            processes.lose_one()
            if kill % max(5, kills // 20) == 0:
                check(processes)
    finally:
        processes.end()
    check(processes)
    # Otherwise the test would have watched nothing happen.
    assert {move for _, _, move in processes.lines("settled")} >= {"Succeed", "Retry", "Park", "Dead", "Cancel"}
    store = SqliteStore(processes.path)
    try:
        await drain(store, clock.now() + HOUR)
        await check_orders(processes, store)
        tallied = await store.tally("status", Filter(), clock.now() + HOUR)
        assert set(tallied.counts) == {"succeeded", "dead", "cancelled"}
    finally:
        await store.close()
    check(processes)


async def test_nothing_is_lost_when_processes_are_killed(tmp_path: Path) -> None:
    await play(tmp_path, kills=20, seed=1)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_lost_in_two_hundred_kills(tmp_path: Path, seed: int) -> None:
    await play(tmp_path, kills=200, seed=seed)
