"""A gate: what we know of one dependency, and how many of its jobs may run.

Open, everything runs and every result is evidence. When the evidence says that it is down, the gate is held:
nothing runs but a probe now and then. A probe that succeeds starts a ramp, so that recovery is no stampede.

One job alone never holds a gate, however often it fails: it waits by itself (see `decide`), and others may be well.

The evidence is a sequential test (CUSUM) between a dependency that fails often and one that is down. A ratio over
the last twenty calls, as textbooks have it, takes bad luck for an outage; this asks for about thirty failures in
a row, or more of them the more successes are in between, and forgets as soon as successes return.
"""

import math
from typing import Literal, TypeAlias, assert_never

from msgspec.structs import replace

from reprieve.core.duration import clamp, milliseconds
from reprieve.core.record import Record
from reprieve.core.verdict import Verdict

Mode: TypeAlias = Literal["open", "held", "probing"]

DOWN, POOR = 0.95, 0.65
"""The share of failing calls of a dependency that is down, and of one that is merely poor."""

_FAIL = math.log(DOWN / POOR)
_OK = math.log((1 - DOWN) / (1 - POOR))

ENOUGH = 11.0
"""The evidence that holds a gate: 29 failures in a row. At 60 % random errors it comes up by chance less than
once in 10⁵ calls."""

MOST = 0.8
"""The share of all calls, those still under way included, that must have failed before a gate is held."""

FEWEST = 20
"""Calls below which nothing is concluded."""

MOST_FAIL = 0.5
"""The running share of failures from which on most calls fail."""

MEMORY = 0.1
"""The weight of the newest call in the running share of failures."""

PROBE_SHARE, PROBE_SOONEST, PROBE_LATEST = 0.1, 1.0, 30.0
"""A probe follows after this share of the outage so far, in seconds at least and at most."""

WITNESSES = 3
"""Different jobs that must have failed before a dependency counts as unwell, or its gate is held: one job may be bad
all by itself."""

TOP = 64
"""The last step of the ramp: whoever passes it is open again."""


class Gate(Record):
    """The state of one dependency."""

    dependency: str
    mode: Mode = "open"
    since_at: int = 0
    """When this mode began."""

    failing: float = 0.0
    """The running share of failures, for blame."""
    witnesses: tuple[str, ...] = ()
    """The last few different jobs that failed while most calls did."""
    evidence: float = 0.0
    oks: int = 0
    fails: int = 0
    """Calls since the evidence was last zero; while probing, calls of this step of the ramp."""

    answered_at: int | None = None
    """When the latest call that succeeded began, as far as that is known: while all is well, nothing is told."""

    down_at: int | None = None
    """When the outage began."""
    probe_at: int | None = None
    """When a held gate lets a probe through; None waits for a person."""
    ramp: int = 0
    """How many calls may be under way while probing."""

    @property
    def is_healthy(self) -> bool:
        """Whether a failure is more likely the job's own: most calls get through, or only this job complains."""
        return self.mode == "open" and (self.failing < MOST_FAIL or len(self.witnesses) < WITNESSES)

    def permits(self, under_way: int) -> int | None:
        """Return how many more calls may start now; None is any number."""
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
    """Results since the last step. Only failures that are the dependency's count as `fails`, and slow calls as such.

    Calls that began before the gate's `since_at` say nothing about a gate that is held or probing: leave them out.
    """

    oks: int = 0
    fails: int = 0
    under_way: int = 0
    failed: tuple[str, ...] = ()
    """Ids of jobs whose calls failed; a few are enough."""
    answered_at: int | None = None
    """When the latest of the calls that succeeded began."""


class Tick(Record):
    """Time passed."""


class Well(Record):
    """A health check of the dependency succeeded: probe now."""


class PushBack(Record):
    """The dependency asked everybody to wait until a moment."""

    until_at: int


class Hold(Record):
    """A person closes the gate, until a moment or until it is released."""

    until_at: int | None = None


class Release(Record):
    """A person opens the gate; traffic comes back up the ramp."""


Signal: TypeAlias = Calls | Tick | Well | PushBack | Hold | Release


def signal_of(job_id: str, verdict: Verdict | None, now: int) -> Signal | None:
    """Return what one call tells its gate: None of a failure that was the job's own. No verdict is a success."""
    if verdict is None:
        return Calls(oks=1)
    if verdict.scope != "dependency":
        return None
    if verdict.kind == "throttled" and verdict.retry_after:
        return PushBack(until_at=now + milliseconds(clamp(verdict.retry_after)))
    return Calls(fails=1, failed=(job_id,))


def step(gate: Gate, signal: Signal, now: int) -> Gate:
    """Return the gate after a signal. Time may also carry a held gate into probing."""
    gate = _awaken(gate, now)
    match signal:
        case Calls():
            return _hear(gate, signal, now)
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


def _awaken(gate: Gate, now: int) -> Gate:
    if gate.mode == "held" and gate.probe_at is not None and gate.probe_at <= now:
        return _probe(gate, now)
    return gate


def _hear(gate: Gate, calls: Calls, now: int) -> Gate:
    if calls.answered_at is not None:
        gate = replace(gate, answered_at=max(calls.answered_at, gate.answered_at or 0))
    match gate.mode:
        case "open":
            return _weigh(gate, calls, now)
        case "held":
            return gate
        case "probing":
            return _climb(gate, calls, now)
        case _:
            assert_never(gate.mode)


def _weigh(gate: Gate, calls: Calls, now: int) -> Gate:
    """Gather evidence; hold the gate when it suffices."""
    evidence = gate.evidence + calls.fails * _FAIL + calls.oks * _OK
    failing = gate.failing
    if total := calls.oks + calls.fails:
        failing += (calls.fails / total - failing) * (1 - (1 - MEMORY) ** total)
    witnesses = tuple(dict.fromkeys((*calls.failed, *gate.witnesses)))[:WITNESSES]
    gate = replace(gate, failing=failing, witnesses=witnesses if calls.fails or failing >= MOST_FAIL else ())
    is_lonely = len(gate.witnesses) < WITNESSES
    if is_lonely:
        # What one job says again and again must not outweigh what others will say.
        evidence = min(evidence, ENOUGH)
    if evidence <= 0:
        return replace(gate, evidence=0.0, oks=0, fails=0, down_at=None)
    oks, fails = gate.oks + calls.oks, gate.fails + calls.fails
    down_at = now if gate.down_at is None else gate.down_at
    gate = replace(gate, evidence=evidence, oks=oks, fails=fails, down_at=down_at)
    ended = oks + fails
    if not is_lonely and evidence >= ENOUGH and ended >= FEWEST and fails >= MOST * (ended + calls.under_way):
        return _hold(gate, now + _probe_delay(gate, now), now)
    return gate


def _climb(gate: Gate, calls: Calls, now: int) -> Gate:
    """Judge a step of the ramp: most of its calls failed, and it is held again; all are in, and it goes on."""
    oks, fails = gate.oks + calls.oks, gate.fails + calls.fails
    if fails >= MOST * max(gate.ramp, oks + fails):
        return _hold(gate, now + _probe_delay(gate, now), now)
    if oks + fails < gate.ramp:
        return replace(gate, oks=oks, fails=fails)
    if gate.ramp < TOP:
        return replace(gate, oks=0, fails=0, ramp=gate.ramp * 2)
    return Gate(dependency=gate.dependency, since_at=now, answered_at=gate.answered_at)


def _push_back(gate: Gate, until_at: int, now: int) -> Gate:
    # A shorter push-back does not shorten a hold that stands, least of all a person's.
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
    return milliseconds(min(PROBE_LATEST, max(PROBE_SOONEST, PROBE_SHARE * outage)))
