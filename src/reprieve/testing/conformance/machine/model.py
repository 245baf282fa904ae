"""The model of a store: plain dicts that only the core's `evolve` changes."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from reprieve.core.audit import AuditEntry
from reprieve.core.change import Change, give_up
from reprieve.core.duration import milliseconds
from reprieve.core.events import Event, enqueued, started
from reprieve.core.fairness.candidates import Capacity
from reprieve.core.job import CancelRequest, Job
from reprieve.core.move import LEGAL, Dead, Enqueue, Park, Retry, Start, Succeed, evolve
from reprieve.core.rate import Rate
from reprieve.core.series import COUNTERS, delta_of
from reprieve.stores import protocol
from reprieve.stores.causes import FailureNames, hour_of, oldest_hour
from reprieve.stores.causes import names_of as failure_names_of
from reprieve.stores.protocol import (
    KEY_RETENTION_SECONDS,
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    FailureGroup,
    Heartbeat,
    LimitUpdate,
    Subject,
    cancel_requested,
)
from reprieve.testing.conformance.expect import expect, expect_job

Name: TypeAlias = tuple[Subject, str, str]
"""Subject, name, and the queue of a tenant or the dependency of a tenant_dependency."""

UNKNOWN_TURN = ("?", 0)
"""The tenant that was served last, and how often in a row, where that is not known."""


class SeenFailure(NamedTuple):
    """A death, or a failure that a job survived."""

    names: FailureNames
    at: int
    job_id: str


@dataclass(slots=True)
class Session:
    """A session as the model knows it."""

    expires_at: int
    opened: Heartbeat
    last_heartbeat: Heartbeat
    number: int = 0
    is_dead: bool = False
    """Whether its death was declared: by recovery, or because it ended itself."""
    is_given_up: bool = False
    """Whether it knows of its death. Until then it goes on as if it lived."""
    last: tuple[Claim, Claimed] | None = None
    starts: list[Job] = field(default_factory=list)
    """Jobs whose starts its next claim tells."""
    hand: dict[str, Job] = field(default_factory=dict)
    """The leases that its worker knows of: those whose reply arrived."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.opened.session

    def read(self) -> protocol.Session:
        """Return it as a store lists it."""
        opened, last = self.opened, self.last_heartbeat
        return protocol.Session(
            id=self.name,
            host=opened.host,
            pid=opened.pid,
            version=opened.version,
            tasks=opened.tasks,
            since=opened.now,
            queues=last.queues,
            slots=last.slots,
            prefetch=last.prefetch,
            running=last.running,
            heartbeat_at=last.now,
        )


@dataclass(slots=True)
class Rule:
    """What was limited of one subject."""

    permits: int | None = None
    max_running: int | None = None
    rate: Rate | None = None
    weight: float = 1.0
    pauses: tuple[str, ...] = ()
    grants: list[int] = field(default_factory=list)
    """When its jobs were leased, or as much later as a meter of earlier rates may remember."""
    since: int = 0
    """The first grant that counts for this rate."""
    own: set[str] = field(default_factory=set)
    """What it does not take from the default."""

    def under(self, default: "Rule") -> "Rule":
        """Return it with the permits and the number of jobs of a default, where it has none of its own."""
        facts = {fact: getattr(default, fact) for fact in ("permits", "max_running") if fact not in self.own}
        return dataclasses.replace(self, **facts)

    @property
    def is_own(self) -> bool:
        """Whether it has anything of its own, also if that is no limit."""
        return bool(self.own - {"weight"}) or self.weight != 1

    def replace_rate(self) -> None:
        """Begin to count anew; what was granted may be taken for granted at the end of its old bucket."""
        self.since = len(self.grants)
        if self.rate is not None:
            self.grants = [time + self.rate.bucket for time in self.grants]


def update_of(name: Name, **fields: Any) -> LimitUpdate:  # noqa: ANN401 - whatever an update carries
    """Return an update of a subject."""
    subject, own, scope = name
    queue, dependency = scope if subject == "tenant" else "", scope if subject == "tenant_dependency" else ""
    return LimitUpdate(subject=subject, name=own, queue=queue, dependency=dependency, **fields)


def names_of(job: Job) -> list[Name]:
    """Return all that may be limited about a job."""
    names: list[Name] = [("queue", job.queue, ""), ("tenant", job.tenant, job.queue), ("task", job.task, "")]
    if job.dependency:
        names += [("dependency", job.dependency, ""), ("tenant_dependency", job.tenant, job.dependency)]
    if job.group:
        names.append(("group", job.group, ""))
    return names


class Model:
    """The jobs, and everything that claims depend on."""

    def __init__(self, now: int) -> None:
        """Begin empty."""
        self.now = self.latest = now
        self.jobs: dict[str, Job] = {}
        self.enqueued: dict[str, Job] = {}
        """The jobs as they were enqueued."""
        self.keys: dict[tuple[str, str, str], tuple[str, int]] = {}
        self.done: dict[tuple[str, int], Event] = {}
        self.forgotten: set[tuple[str, int]] = set()
        self.untold: list[Event] = []
        """Events that must be stored, and are not checked yet."""
        self.untold_enqueues: dict[str, Event] = {}
        """Enqueues that must be told before anything else of their jobs, and were not seen yet."""
        self.leases: dict[str, tuple[str, int]] = {}
        """Running jobs: the session and the number of its claim."""
        self.sessions: dict[str, Session] = {}
        self.rules: dict[Name, Rule] = {}
        self.defaults: dict[Subject, Rule] = {}
        """What holds for every name of a subject that has nothing of its own."""
        self.limbo: set[str] = set()
        """Jobs whose wait had ended before it was paused: whether they may run is left to the store."""
        self.turns: dict[str, tuple[str, int]] = {}
        self.served: Counter[tuple[str, str]] = Counter()
        self.unsure: set[tuple[str, str]] = set()
        """Tenants of a queue whose picks cannot be counted from outside, since an expired job may be one."""
        self.expired: set[str] = set()
        """Queues in which jobs expired during the claim that is judged."""
        self.touched: set[str] = set()
        self.failures: dict[str, FailureGroup] = {}
        self.counted: Counter[tuple[str, str]] = Counter()
        """What series must have counted, by queue and measure or code."""
        self.audit: list[AuditEntry] = []
        """What people did."""
        self.survived: list[SeenFailure] = []
        self.deaths: list[SeenFailure] = []

    def add(self, job: Job) -> None:
        """Store a new job."""
        self.jobs[job.id] = self.enqueued[job.id] = job
        self.touched.add(job.id)
        if job.tells_all:
            self.untold_enqueues[job.id] = enqueued(job)
        self.counted[job.queue, "enqueued"] += 1
        if job.key:
            kept = KEY_RETENTION_SECONDS if job.key_ttl is None else job.key_ttl
            self.keys[job.task, job.tenant, job.key] = (job.id, self.now + milliseconds(kept))

    def holder(self, job: Job) -> str | None:
        """Return the job that has this key: for its time, and until that job has succeeded or is deleted."""
        found = self.keys.get((job.task, job.tenant, job.key)) if job.key else None
        if found is None:
            return None
        other = self.jobs.get(found[0])
        is_over = other is None or other.state == "succeeded"
        return None if is_over and self.now >= found[1] else found[0]

    def judge(self, change: Change) -> frozenset[ChangeResult]:
        """Return what may become of a change; more than one result only for a job that was pruned."""
        job, place = self.jobs.get(change.job.id), (change.job.id, change.event.version)
        is_done = self.done.get(place) == change.event
        if job is None:
            return frozenset({"missing", "already"} if is_done else {"missing"})
        if is_done:
            return frozenset({"already", "refused"} if place in self.forgotten else {"already"})
        move, is_wanted = change.event.move, job.version == change.version and job.session == change.session
        if is_wanted and not isinstance(move, Enqueue) and job.state in LEGAL[type(move)][0]:
            return frozenset({"applied"})
        return frozenset({"refused"})

    def carry_out(self, change: Change) -> ChangeResult:
        """Apply a change or refuse it; return which."""
        (result, *_) = sorted(self.judge(change))
        if result == "applied":
            request = self.jobs[change.job.id].cancel_request
            self.move(change)
            if change.audit is not None:
                self.audit.append(change.audit)
            cancel = request and give_up(change, request)
            if cancel:
                self.move(cancel)
        return result

    def move(self, change: Change) -> None:
        """Move a job: the one place where the model changes one. Only the traceback is not in the event."""
        event = change.event
        before = self.jobs[event.job_id]
        if isinstance(event.move, Enqueue):
            message = f"{event!r} is no change of a job"
            raise AssertionError(message)  # noqa: TRY004 - what a check of a store raises
        after = evolve(before, event.move, event.at)
        if after.cause is not None and change.job.cause is not None:
            after = replace(after, cause=replace(after.cause, traceback=change.job.cause.traceback))
        place = (event.job_id, event.version)
        expect(after.version == event.version, f"the event {event!r} is that of another version")
        expect(place not in self.done, f"version {before.version} of job {before.id} was settled twice")
        expect(after.attempt >= before.attempt, f"the attempts of job {before.id} went back")
        self.jobs[event.job_id] = after
        if isinstance(event.move, Retry | Park | Dead):
            seen = self.deaths if isinstance(event.move, Dead) else self.survived
            seen.append(SeenFailure(failure_names_of(after), event.at, after.id))
        self.touched.add(event.job_id)
        self.limbo.discard(event.job_id)
        delta = delta_of(change)
        for number in delta.numbers if delta is not None else ():
            self.counted[after.queue, COUNTERS[number] if isinstance(number, int) else f"died {number}"] += 1
        if isinstance(event.move, Start):
            return
        self.leases.pop(event.job_id, None)
        self.done[place] = event
        if not isinstance(event.move, Succeed) or after.tells_all:
            self.untold.append(event)

    def holds(self, session: str, job: Job) -> bool:
        """Return whether a session still holds a job as it was leased."""
        return self.leases.get(job.id, ("", 0))[0] == session and self.jobs[job.id].version == job.version

    def tell_starts(self, claim: Claim) -> None:
        """Note that the starts of jobs that a session holds are told."""
        self.untold.extend(map(started, claim.starts))

    def ask_to_stop(self, job: Job, request: CancelRequest) -> None:
        """Note a cancel request; the first stands."""
        if job.cancel_request is None:
            annotation = Annotation(job_id=job.id, now=self.now, cancel=request)
            self.audit.append(cancel_requested(annotation, request, tenant=job.tenant, queue=job.queue))
        self.jobs[job.id] = replace(job, cancel_request=job.cancel_request or request)
        self.touched.add(job.id)

    def describe_failures(self, groups: Iterable[FailureGroup]) -> None:
        """Keep groups that are new, and when the others were last seen."""
        for group in groups:
            known = self.failures.setdefault(group.fingerprint, group)
            last_seen_at = max(known.last_seen_at, group.last_seen_at)
            self.failures[group.fingerprint] = replace(known, last_seen_at=last_seen_at)

    def forget_hours(self, now: int) -> None:
        """Let go the deaths and failures of hours that are kept no longer."""
        self.deaths = [one for one in self.deaths if hour_of(one.at) >= oldest_hour(now, is_living=False)]
        self.survived = [one for one in self.survived if hour_of(one.at) >= oldest_hour(now, is_living=True)]

    def forget(self, job_id: str) -> None:
        """Let a job go that was pruned; its key stays for its time."""
        del self.jobs[job_id]
        self.touched.discard(job_id)

    def forget_tenants(self, listed: set[tuple[str, str]]) -> None:
        """Let go what a store remembers of tenants, by queue and name, that it does not list any more."""
        for key in self.served.keys() - listed:
            del self.served[key]
            self.unsure.discard(key)
        for queue, (tenant, _) in self.turns.items():
            if (queue, tenant) not in listed:
                self.turns[queue] = UNKNOWN_TURN

    def rule(self, name: Name) -> Rule:
        """Return what holds for a subject."""
        rule, default = self.rules.get(name) or Rule(), self.defaults.get(name[0])
        return rule if default is None else rule.under(default)

    def has_limited(self, name: Name) -> bool:
        """Return whether a subject has, or ever had, limits of its own or of a default."""
        return name in self.rules or name[0] in self.defaults

    def update_limits(self, update: LimitUpdate) -> None:
        """Change what holds for a subject."""
        if update.name is None:
            rule = self.defaults.setdefault(update.subject, Rule())
        else:
            rule = self.rules.setdefault((update.subject, update.name, update.queue or update.dependency), Rule())
        for fact in ("permits", "max_running", "rate", "weight", "pauses"):
            value = getattr(update, fact)
            if value is UNSET:
                continue
            (rule.own.discard if value == "default" else rule.own.add)(fact)
            value = None if value == "default" else value
            if fact == "rate" and value != rule.rate:
                rule.replace_rate()
            setattr(rule, fact, value)
        if update.pauses is not UNSET and update.subject == "queue":
            ended = (job for job in self.waiting((update.name or "",)) if job.due_at <= self.latest)
            self.limbo.update(job.id for job in ended if job.waiting_for in update.pauses)

    def waiting(self, queues: Iterable[str]) -> Iterator[Job]:
        """Return the waiting jobs of some queues."""
        wanted = frozenset(queues)
        return (job for job in self.jobs.values() if job.state == "waiting" and job.queue in wanted)

    def running(self) -> Counter[Name]:
        """Count what runs, by everything that may be limited."""
        return Counter(name for job in self.jobs.values() if job.state == "running" for name in names_of(job))

    def lost(self) -> dict[str, Job]:
        """Return the running jobs of sessions that are dead."""
        dead = {session.name for session in self.sessions.values() if session.is_dead}
        return {job_id: self.jobs[job_id] for job_id, (session, _) in self.leases.items() if session in dead}

    def capacity(self, queue: str) -> Capacity:
        """Return the slots and the prefetch of the live sessions that serve a queue."""
        living = (session.last_heartbeat for session in self.sessions.values() if not session.is_dead)
        serving = [last for last in living if not last.queues or queue in last.queues]
        return Capacity(sum(last.slots for last in serving), sum(last.prefetch for last in serving))

    def require_sense(self, job_id: str) -> None:
        """Check what is true of every job at any time."""
        job = self.jobs[job_id]
        is_running = job.state == "running"
        expect(is_running == (job_id in self.leases), f"job {job_id} is {job.state}, and its lease says otherwise")
        expect(is_running == bool(job.session), f"job {job_id} is {job.state} in session {job.session!r}")
        expect(job.state != "dead" or (job.death and job.cause) is not None, f"job {job_id} is dead without a reason")
        expect(job.limit is None or job.charged <= job.limit, f"job {job_id} was charged more than its limit")

    def compare(self, found: Iterable[Job], wanted: Iterable[str]) -> None:
        """Check that the jobs that were found are those of the model, field by field."""
        stored = {job.id: job for job in found}
        for job_id in wanted:
            expect_job(stored.get(job_id), self.jobs[job_id])
