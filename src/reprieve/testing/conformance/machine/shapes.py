"""What the machine draws: jobs, outcomes, updates and requests, each from a short list, the simplest first."""

import math

import msgspec

from reprieve.core.backoff import Exponential
from reprieve.core.change import Request
from reprieve.core.failure import Failure
from reprieve.core.gate import Gate
from reprieve.core.headers import Headers
from reprieve.core.job import CancelRequest, Job
from reprieve.core.outcome import Failed, Interrupted, Outcome, Snoozed, Stopped, Succeeded
from reprieve.core.policy import Policy
from reprieve.core.rate import Rate
from reprieve.core.record import Record
from reprieve.core.verdict import Verdict
from reprieve.stores.protocol import FailureGroup, LimitUpdate, Retention
from reprieve.testing.conformance.machine.model import Name, update_of

SECOND = 1_000

QUEUES = ("q", "r")
TENANTS = ("a", "b", "c")
TASKS = ("send", "render")
DEPENDENCIES = ("", "ses", "smtp")

POLICY = Policy(max_attempts=3, backoff=Exponential("1s", cap="60s"), max_crashes=2)


class Shape(Record):
    """What a drawn job is like."""

    queue: str
    tenant: str
    task: str
    dependency: str
    group: str
    priority: int
    delay: int
    key: str
    lifetime: int | None
    headers: Headers | None
    sla: int | None

    def job(self, job_id: str, now: int) -> Job:
        """Make a job of it."""
        return Job(
            id=job_id,
            task=self.task,
            queue=self.queue,
            tenant=self.tenant,
            dependency=self.dependency,
            group=self.group,
            key=self.key,
            key_ttl=20.0 if self.key == "l" else None,
            priority=self.priority,
            created_at=now,
            due_at=now + self.delay,
            waiting_for="schedule" if self.delay else "turn",
            deadline_at=None if self.lifetime is None else now + self.delay + self.lifetime,
            max_attempts=POLICY.max_attempts,
            headers=self._headers(now),
        )

    def _headers(self, now: int) -> Headers | None:
        if self.sla is None:
            return self.headers
        return msgspec.structs.replace(self.headers or Headers(), sla_at=now + self.sla)


_FACTS: dict[str, tuple[object, ...]] = {
    "tenant": TENANTS,
    "priority": (5, 5, 1, 9),
    "task": TASKS,
    "dependency": DEPENDENCIES,
    "delay": (0, 0, 0, 0, 0, 0, SECOND, 70 * SECOND),
    "group": ("", "", "g"),
    "key": ("", "", "", "", "", "", "k", "l"),
    "lifetime": (None, None, None, None, 60 * SECOND, 5 * SECOND),
    "queue": ("q", "q", "q", "r"),
    "headers": (
        None,
        None,
        Headers(tells_all=True),
        Headers(tags=("nightly",), user="ana", own={"origin": "import"}),
    ),
    "sla": (None, None, None, 30 * SECOND, 90 * SECOND),
}
"""What a job may be like, the rare among the frequent."""

SHAPES = math.prod(len(values) for values in _FACTS.values())
"""How many shapes there are."""


def shape(number: int) -> Shape:
    """Return a job's shape by its number, as a printed history names it; 0 is the plainest."""
    facts: dict[str, object] = {}
    for name, values in _FACTS.items():
        number, place = divmod(number, len(values))
        facts[name] = values[place]
    return msgspec.convert(facts, Shape)


def _failed(kind: str, scope: str, code: str) -> Failed:
    verdict = Verdict(kind=kind, scope=scope, code=code)  # type: ignore[arg-type] # the words of a table
    failure = Failure(message=f"{code} went wrong", code=code, types=("Error",), traceback=f"File …\nError: {code}")
    return Failed(failure=failure, verdict=verdict, duration=0.25)


OUTCOMES: tuple[tuple[Outcome, Gate | None], ...] = (
    (Succeeded(), None),
    (_failed("transient", "job", "450"), None),
    (_failed("permanent", "job", "550"), None),
    (_failed("transient", "dependency", "421"), Gate(dependency="ses", mode="held")),
    (_failed("throttled", "dependency", "429"), Gate(dependency="ses")),
    (Snoozed(delay=1.0), None),
    (Interrupted(), None),
    (Stopped(reason="no longer wanted"), None),
    (Succeeded(result=b"done"), None),
)

_LIMITS: tuple[dict[str, object], ...] = (
    {"permits": None},
    {"permits": 0},
    {"permits": 1},
    {"permits": 4},
    {"max_running": None},
    {"max_running": 1},
    {"max_running": 3},
    {"rate": None},
    {"rate": Rate(count=1, window=1.0)},
    {"rate": Rate(count=3, window=10.0)},
)
_DEFAULTS: tuple[dict[str, object], ...] = (
    {"permits": "default", "max_running": "default"},
    {"permits": 0},
    {"permits": 3},
    {"max_running": 2},
)
_NAMED: tuple[Name, ...] = (
    ("dependency", "ses", ""),
    ("dependency", "smtp", ""),
    *(("task", name, "") for name in TASKS),
    *(("tenant", name, "q") for name in TENANTS),
    *(("tenant_dependency", name, "ses") for name in TENANTS),
    ("queue", "q", ""),
    ("queue", "r", ""),
    ("group", "g", ""),
)
LIMIT_UPDATES = (
    *(update_of(name, **limit) for limit in _LIMITS for name in _NAMED),
    *(
        LimitUpdate(subject="tenant", name=name, queue="q", weight=weight)
        for weight in (1.0, 0.5, 2.0, 8.0)
        for name in TENANTS
    ),
    *(
        LimitUpdate(subject="queue", name=name, pauses=pauses)
        for pauses in ((), ("retry",), ("schedule",), ("schedule", "retry"))
        for name in QUEUES
    ),
    *(
        LimitUpdate(subject=subject, name=None, **limit)  # type: ignore[arg-type] # as in the lists above
        for limit in _DEFAULTS
        for subject in ("dependency", "tenant", "queue", "task", "tenant_dependency")
    ),
    *(update_of(name, permits="default", max_running="default") for name in _NAMED),
)

GROUPS = ("group-0", "group-1", "group-2")
"""Fingerprints of failures."""

REQUESTS = (
    Request(by="ana", reason="the provider is back", force=True),
    Request(by="bea", reason="the customer called", force=True),
    Request(by="ana", reason="later", force=True, delay=5.0),
)

CANCEL_REQUESTS = (
    CancelRequest(by="ana", reason="sent twice"),
    CancelRequest(by="bea", reason="the customer left"),
)

STEPS = (1, 100, SECOND, SECOND, 3 * SECOND, 3 * SECOND, 12 * SECOND, 61 * SECOND, 3_600 * SECOND, -50, -SECOND)
"""Milliseconds by which the clock jumps."""


def limit_update(number: int) -> LimitUpdate:
    """Return an update by its number, as a printed history names it."""
    return LIMIT_UPDATES[number]


def failure_group(number: int, now: int) -> FailureGroup:
    """Return a group of failures, in words of this moment."""
    name = GROUPS[number]
    return FailureGroup(fingerprint=name, template=f"{name} at {now}", first_seen_at=now, last_seen_at=now)


def retentions(now: int) -> tuple[Retention, ...]:
    """Return ways to prune."""
    return (
        Retention(now=now),
        Retention(now=now, succeeded=2),
        Retention(now=now, succeeded_for=10.0),
        Retention(now=now, cancelled_for=10.0),
        Retention(now=now, events_for=30.0),
        Retention(now=now, failures_for=60.0),
        Retention(now=now, failures=1),
        Retention(now=now, succeeded=0, succeeded_for=0.0, cancelled_for=0.0),
    )
