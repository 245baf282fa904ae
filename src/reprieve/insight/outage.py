"""An outage in virtual time: a backlog of jobs against a dependency that is down, decided by the production code.

The core leases, classifies and settles the jobs, as in a worker. Only the clock, the workers' slots and the dependency
are simulated.
"""

import heapq
import random
from collections import Counter, deque
from collections.abc import Iterator

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.classify import TABLES, judge
from reprieve.core.decide import Conditions, decide
from reprieve.core.duration import milliseconds
from reprieve.core.failure import read
from reprieve.core.gate import Calls, Gate, Tick, signal_of, step
from reprieve.core.ids import make_id
from reprieve.core.job import Job
from reprieve.core.outcome import Failed, Outcome, Succeeded
from reprieve.core.policy import Policy
from reprieve.core.record import Record


class Scenario(Record):
    """The backlog, the speed of calls, and how long the dependency is down from the start."""

    jobs: int = 10_000
    slots: int = 50
    call: float = 0.1
    """Seconds that a successful call takes."""
    refusal: float = 0.02
    """Seconds that a failing call takes."""
    down_for: float = 60.0
    seed: int = 1


class Report(Record):
    """The result of a simulation."""

    calls: int
    succeeded: int
    dead: int
    ended_after: float
    """Seconds from the end of the outage until the last job ended; negative when all were dead before it."""
    calls_by_second: dict[int, int]


def simulate(policy: Policy, scenario: Scenario, *, park: bool) -> Report:
    """Return the result of the outage, with the dependency's gate or without it."""
    return _Simulation(policy, scenario, park=park).run()


class _Simulation:
    """The state of one simulation. Times are milliseconds from the beginning of the outage."""

    def __init__(self, policy: Policy, scenario: Scenario, *, park: bool) -> None:
        self.policy = policy
        self.scenario = scenario
        self.rng = random.Random(scenario.seed)  # noqa: S311 - randomness of a simulation
        self.down_until = milliseconds(scenario.down_for)
        self.gate = Gate(dependency="ses") if park else None
        self.failed = _failed("421 4.3.2 service not available")
        self.ready = deque(self._backlog())
        self.agenda: list[tuple[int, int, Job, bool]] = []
        """A heap of future events: the time, a tie-breaker, a job, and whether its call ends then (else it is due)."""
        self.under_way = 0
        self.calls: Counter[int] = Counter()
        self.ended: Counter[str] = Counter()
        self.last_end = 0

    def run(self) -> Report:
        now = 0
        self._start_calls(now)
        while self.agenda or self.ready:
            now = self._next_time(now)
            while self.agenda and self.agenda[0][0] <= now:
                _, _, job, is_call = heapq.heappop(self.agenda)
                if is_call:
                    self._end_call(job, now)
                else:
                    self.ready.append(job)
            if self.gate is not None:
                self.gate = step(self.gate, Tick(), now)
            self._start_calls(now)
        return Report(
            calls=self.calls.total(),
            succeeded=self.ended["succeeded"],
            dead=self.ended["dead"],
            ended_after=(self.last_end - self.down_until) / 1_000,
            calls_by_second=dict(self.calls),
        )

    def _backlog(self) -> Iterator[Job]:
        for number in range(self.scenario.jobs):
            yield Job(id=make_id(0, number), task="send", dependency="ses", created_at=0, due_at=0)

    def _next_time(self, now: int) -> int:
        times = [self.agenda[0][0]] if self.agenda else []
        if self.gate is not None and self.gate.probe_at is not None:
            times.append(self.gate.probe_at)
        return max(now, min(times))

    def _start_calls(self, now: int) -> None:
        permits = None if self.gate is None else self.gate.permits(self.under_way)
        free = self.scenario.slots - self.under_way
        for _ in range(min(len(self.ready), free if permits is None else min(free, permits))):
            job = change.lease(self.ready.popleft(), "worker", now).job
            length = self.scenario.refusal if now < self.down_until else self.scenario.call
            self._schedule(now + milliseconds(length), job, is_call=True)
            self.under_way += 1
            self.calls[now // 1_000] += 1

    def _end_call(self, job: Job, now: int) -> None:
        self.under_way -= 1
        leased_at = job.leased_at or 0
        is_down = leased_at < self.down_until
        outcome: Outcome = self.failed if is_down else Succeeded()
        if self.gate is not None and (self.gate.mode == "open" or leased_at >= self.gate.since_at):
            signal = signal_of(job.id, outcome, now)
            if isinstance(signal, Calls):
                last_success_at = None if is_down else leased_at
                signal = replace(signal, under_way=self.under_way, last_success_at=last_success_at)
            if signal is not None:
                self.gate = step(self.gate, signal, now)
        conditions = Conditions(now=now, u=self.rng.random(), gate=self.gate)
        job = change.settle(job, decide(job, outcome, self.policy, conditions), now).job
        if job.state == "waiting":
            self._schedule(job.due_at, job, is_call=False)
        else:
            self.ended[job.state] += 1
            self.last_end = now

    def _schedule(self, at: int, job: Job, *, is_call: bool) -> None:
        heapq.heappush(self.agenda, (at, self.rng.getrandbits(62), job, is_call))


def _failed(reply: str) -> Failed:
    failure = read(reply)
    return Failed(failure=failure, verdict=judge(failure, TABLES))
