"""A gate: the circuit breaker of one dependency, and how many of its jobs may run.

While the gate is open, all jobs run and every result is evidence. When the evidence says that the dependency is down,
the gate is held: only probes run. A probe that succeeds starts a ramp, so that jobs do not all return at once.

A single job never holds a gate, however often it fails: it is parked by itself (see `decide`), because the calls of
other jobs may succeed.

The evidence is a sequential test (CUSUM) between a dependency that fails often and one that is down. A ratio over the
last twenty calls would take bad luck for an outage; this test needs about thirty failures in a row, or more when
successes are in between, and resets as soon as successes return.
"""

import math
from typing import Literal, TypeAlias, assert_never

from msgspec.structs import replace

from reprieve.core.duration import clamp, milliseconds
from reprieve.core.network import CONNECT_TIMEOUT, UNREACHABLE
from reprieve.core.outcome import Crashed, Failed, Interrupted, Outcome, Snoozed, Stopped, Succeeded
from reprieve.core.record import Record

Mode: TypeAlias = Literal["open", "held", "probing"]

DOWN_FAILURE_SHARE, POOR_FAILURE_SHARE = 0.95, 0.65
"""The share of failing calls of a dependency that is down, and of one that fails often."""

_FAILURE_EVIDENCE = math.log(DOWN_FAILURE_SHARE / POOR_FAILURE_SHARE)
_SUCCESS_EVIDENCE = math.log((1 - DOWN_FAILURE_SHARE) / (1 - POOR_FAILURE_SHARE))

HOLD_EVIDENCE = 11.0
"""The evidence that holds a gate: 29 failures in a row. With 60 % random errors it is reached less than once in 10⁵
calls."""

HOLD_FAILURE_SHARE = 0.8
"""The share of all calls, running ones included, that must have failed before a gate is held."""

MIN_CALLS = 20
"""The fewest calls before a gate is held."""

UNHEALTHY_FAILURE_SHARE = 0.5
"""The moving average of failures from which on a dependency counts as unhealthy."""

NEWEST_CALL_WEIGHT = 0.1
"""The weight of the newest call in the moving average of failures."""

PROBE_SHARE, MIN_PROBE_SECONDS, MAX_PROBE_SECONDS = 0.1, 1.0, 30.0
"""A probe follows after this share of the outage so far, within these bounds."""

MIN_FAILED_JOBS = 3
"""Different jobs that must have failed before a dependency counts as unhealthy or its gate is held: one job may fail
by its own fault."""

MAX_RAMP = 64
"""The last step of the ramp, in concurrent calls; after it the gate opens."""


class Gate(Record):
    """The state of one dependency."""

    dependency: str
    mode: Mode = "open"
    since_at: int = 0
    """When this mode began."""

    failing: float = 0.0
    """The moving average of failures; it decides whether a failure is charged."""
    failed_jobs: tuple[str, ...] = ()
    """Ids of the last different jobs that failed while most calls failed."""
    evidence: float = 0.0
    oks: int = 0
    fails: int = 0
    """Calls since the evidence was last zero; while probing, calls of this step of the ramp."""

    last_success_at: int | None = None
    """When the latest successful call began. Not updated while all calls succeed."""

    down_at: int | None = None
    """When the outage began."""
    probe_at: int | None = None
    """When a held gate lets a probe through; None: when a person releases it."""
    ramp: int = 0
    """How many calls may run at once while probing."""

    @property
    def is_healthy(self) -> bool:
        """Whether a failure is likely the job's own: most calls succeed, or too few jobs failed."""
        return self.mode == "open" and (
            self.failing < UNHEALTHY_FAILURE_SHARE or len(self.failed_jobs) < MIN_FAILED_JOBS
        )

    def permits(self, under_way: int) -> int | None:
        """Return how many more calls may start now; None: no limit."""
        match self.mode:
            case "open":
                return None
            case "held":
                return 0
            case "probing":
                return max(0, self.ramp - under_way)
            case _:
                assert_never(self.mode)


class Calls(Record):
    """Results since the last step. Only failures of the dependency count as `fails`; timeouts are among them.

    Leave out calls that began before the `since_at` of a gate that is held or probing: they are no evidence.
    """

    oks: int = 0
    fails: int = 0
    neutral: int = 0
    """Calls that ended for the job's own reasons: a snooze, or a failure of the job or its tenant. While the gate
    probes, they show that the dependency responds; while it is open, they are no evidence."""
    under_way: int = 0
    failed: tuple[str, ...] = ()
    """Ids of jobs whose calls failed; a few are enough."""
    last_success_at: int | None = None
    """When the latest of the successful calls began."""


_SUCCESS, _NEUTRAL = Calls(oks=1), Calls(neutral=1)


class Tick(Record):
    """Time passed."""


class Well(Record):
    """A health check of the dependency succeeded: probe now."""


class PushBack(Record):
    """The dependency asked all callers to wait until a time."""

    until_at: int


class Hold(Record):
    """A person holds the gate, until a time or until it is released."""

    until_at: int | None = None


class Release(Record):
    """A person releases the gate; calls return along the ramp."""


Signal: TypeAlias = Calls | Tick | Well | PushBack | Hold | Release


def signal_of(job_id: str, outcome: Outcome, now: int) -> Signal | None:
    """Return the signal of one attempt to the gate of its dependency; None if it says nothing about the dependency."""
    match outcome:
        case Succeeded():
            return _SUCCESS
        case Snoozed() | Stopped():
            return _NEUTRAL
        case Failed():
            return _signal_of_failure(job_id, outcome, now)
        case Interrupted() | Crashed():
            return None
        case _:
            assert_never(outcome)


def _signal_of_failure(job_id: str, failed: Failed, now: int) -> Signal | None:
    failure, verdict = failed.failure, failed.verdict
    if verdict.scope != "dependency":
        # Without a connection there was no response, even if the task handled the error itself.
        is_unconnected = failure.network in UNREACHABLE or failure.network == CONNECT_TIMEOUT
        has_no_response = is_unconnected or failed.is_undecodable or failed.is_expired
        return None if has_no_response else _NEUTRAL
    # A push-back is what the dependency itself sent; the text of a refused connection comes from a library.
    is_push_back = verdict.kind == "throttled" or (verdict.is_unavailable and failure.protocol)
    if is_push_back and verdict.retry_after:
        return PushBack(until_at=now + milliseconds(clamp(verdict.retry_after)))
    return Calls(fails=1, failed=(job_id,))


def step(gate: Gate, signal: Signal, now: int) -> Gate:
    """Return the gate after a signal. A held gate whose probe is due starts probing first."""
    gate = _probe_when_due(gate, now)
    match signal:
        case Calls():
            return _count_calls(gate, signal, now)
        case Tick():
            return gate
        case Well():
            return _probe(gate, now) if gate.mode == "held" and gate.probe_at is not None else gate
        case PushBack(until_at=until_at):
            return _push_back(gate, until_at, now)
        case Hold(until_at=until_at):
            return _hold(gate, until_at, now)
        case Release():
            return gate if gate.mode == "open" else _probe(gate, now)
        case _:
            assert_never(signal)


def _probe_when_due(gate: Gate, now: int) -> Gate:
    if gate.mode == "held" and gate.probe_at is not None and gate.probe_at <= now:
        return _probe(gate, now)
    return gate


def _count_calls(gate: Gate, calls: Calls, now: int) -> Gate:
    if calls.last_success_at is not None:
        gate = replace(gate, last_success_at=max(calls.last_success_at, gate.last_success_at or 0))
    match gate.mode:
        case "open":
            return _gather_evidence(gate, calls, now)
        case "held":
            return gate
        case "probing":
            return _climb_ramp(gate, calls, now)
        case _:
            assert_never(gate.mode)


def _gather_evidence(gate: Gate, calls: Calls, now: int) -> Gate:
    """Add the evidence of these calls; hold the gate when there is enough."""
    evidence = gate.evidence + calls.fails * _FAILURE_EVIDENCE + calls.oks * _SUCCESS_EVIDENCE
    failing = gate.failing
    if total := calls.oks + calls.fails:
        failing += (calls.fails / total - failing) * (1 - (1 - NEWEST_CALL_WEIGHT) ** total)
    failed_jobs = tuple(dict.fromkeys((*calls.failed, *gate.failed_jobs)))[:MIN_FAILED_JOBS]
    is_failing = calls.fails > 0 or failing >= UNHEALTHY_FAILURE_SHARE
    gate = replace(gate, failing=failing, failed_jobs=failed_jobs if is_failing else ())
    has_too_few_jobs = len(gate.failed_jobs) < MIN_FAILED_JOBS
    if has_too_few_jobs:
        # The repeated failures of one job must not outweigh the results of other jobs.
        evidence = min(evidence, HOLD_EVIDENCE)
    if evidence <= 0:
        return replace(gate, evidence=0.0, oks=0, fails=0, down_at=None)
    oks, fails = gate.oks + calls.oks, gate.fails + calls.fails
    down_at = now if gate.down_at is None else gate.down_at
    gate = replace(gate, evidence=evidence, oks=oks, fails=fails, down_at=down_at)
    ended = oks + fails
    has_enough_failures = ended >= MIN_CALLS and fails >= HOLD_FAILURE_SHARE * (ended + calls.under_way)
    if has_enough_failures and evidence >= HOLD_EVIDENCE and not has_too_few_jobs:
        return _hold(gate, now + _probe_delay(gate, now), now)
    return gate


def _climb_ramp(gate: Gate, calls: Calls, now: int) -> Gate:
    """Count the calls of one step of the ramp: hold again if most failed, go one step up when all have ended."""
    oks, fails = gate.oks + calls.oks + calls.neutral, gate.fails + calls.fails
    if fails >= HOLD_FAILURE_SHARE * max(gate.ramp, oks + fails):
        return _hold(gate, now + _probe_delay(gate, now), now)
    if oks + fails < gate.ramp:
        return replace(gate, oks=oks, fails=fails)
    if gate.ramp < MAX_RAMP:
        return replace(gate, oks=0, fails=0, ramp=gate.ramp * 2)
    return Gate(dependency=gate.dependency, since_at=now, last_success_at=gate.last_success_at)


def _push_back(gate: Gate, until_at: int, now: int) -> Gate:
    # A push-back never shortens an existing hold, in particular not a person's.
    if until_at <= now or (gate.mode == "held" and (gate.probe_at is None or gate.probe_at >= until_at)):
        return gate
    return _hold(gate, until_at, now)


def _hold(gate: Gate, probe_at: int | None, now: int) -> Gate:
    since_at = gate.since_at if gate.mode == "held" else now
    down_at = now if gate.down_at is None else gate.down_at
    return replace(
        gate,
        mode="held",
        since_at=since_at,
        probe_at=probe_at,
        down_at=down_at,
        oks=0,
        fails=0,
        evidence=0.0,
        ramp=0,
    )


def _probe(gate: Gate, now: int) -> Gate:
    return replace(gate, mode="probing", since_at=now, probe_at=None, oks=0, fails=0, evidence=0.0, ramp=1)


def _probe_delay(gate: Gate, now: int) -> int:
    outage = 0 if gate.down_at is None else (now - gate.down_at) / 1_000
    return milliseconds(min(MAX_PROBE_SECONDS, max(MIN_PROBE_SECONDS, PROBE_SHARE * outage)))
