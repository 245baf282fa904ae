"""The audit: compares everything that a store returns with the model."""

from collections import Counter
from typing import get_args

import msgspec
from msgspec.structs import replace

from reprieve.core.audit import AuditEntry
from reprieve.core.duration import milliseconds
from reprieve.core.events import Event, replay
from reprieve.core.history import rebuild, untold
from reprieve.core.job import Job
from reprieve.core.move import Enqueue, Succeed
from reprieve.core.notice import Notice
from reprieve.core.status import Status, status_of
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import EventQuery, Filter, Pruned, Retention, SeriesRequest, Store, Subject, Tally
from reprieve.testing.conformance.auditing import all_audit
from reprieve.testing.conformance.expect import expect, expect_equal, expect_job
from reprieve.testing.conformance.machine.cause_audit import CauseAudit
from reprieve.testing.conformance.machine.model import Model, Name, names_of
from reprieve.testing.conformance.machine.shapes import GROUPS, QUEUES

HOUR_MS = 3_600_000
MAX_AUDITED_HOURS = 1_400
"""Hours of series that are read: no history is longer."""

KEPT: tuple[Tally, ...] = ("queue", "task", "dependency")
"""What stores keep counters of."""

UNFINISHED: frozenset[Status] = frozenset(get_args(Status)) - {"succeeded"}


class Audit:
    """Compares a store with the model, and keeps its position in the event stream."""

    def __init__(self, store: Store, model: Model) -> None:
        """Begin at the beginning of the stream."""
        self._store = store
        self._model = model
        self._place = 0
        self._turn = 0
        self._causes = CauseAudit(store, model)
        self._noticed = 0
        self._sessions_told: Counter[tuple[str, bool]] = Counter()
        self._told: dict[str, list[Event]] = {}
        """The events of each job that were read, also those that were pruned since."""

    async def look(self) -> None:
        """Compare what the last step touched."""
        model = self._model
        touched, model.touched = tuple(model.touched), set()
        if not touched:
            return
        page = await self._store.find(Filter(ids=touched), model.now, limit=len(touched))
        model.compare(page.jobs, touched)
        for job_id in touched:
            model.require_sense(job_id)

    async def everything(self) -> None:
        """Compare everything."""
        model = self._model
        found = await self.all_jobs()
        expect_equal({job.id for job in found} ^ model.jobs.keys(), set(), "jobs that only store or model have")
        model.compare(found, model.jobs)
        for job_id in model.jobs:
            model.require_sense(job_id)
        await self.events()
        await self.notices()
        for job in found:
            self._rebuilt(job)
        await self._tally()
        await self._failures()
        await self._log()
        await self._causes.look()
        subjects: tuple[Subject, ...] = get_args(Subject)
        self._turn += 1
        await self._gauges(subjects[self._turn % len(subjects)])
        await self._sessions()

    async def all_jobs(self) -> list[Job]:
        """Return every stored job."""
        jobs: list[Job] = []
        cursor, is_first = "", True
        while cursor or is_first:
            page = await self._store.find(Filter(), self._model.now, cursor, 1_000)
            jobs.extend(page.jobs)
            cursor, is_first = page.cursor, False
        return jobs

    async def events(self) -> None:
        """Check that every move since the last audit has its event, those of a job in order."""
        found: list[tuple[int, Event]] = []
        began = self._place
        while page := await self._store.events(self._place, 1_000):
            found.extend(page)
            expect(page[0][0] > self._place, "places in the stream only grow")
            self._place = page[-1][0]
        back = await self._store.read_events(EventQuery(after=began, newest_first=True, only="jobs"))
        expect_equal(list(back.events), found[::-1][:1_000], "events read backwards")
        expect(back.newest >= self._place, f"the newest event is at {back.newest}, and one was read at {self._place}")
        expect(not back.missed, f"events up to {back.pruned_to} were deleted, and those after {began} are missed")
        self._place = back.newest  # a notice may stand after the last event of a job
        told = [event for _, event in found if not isinstance(event.move, Enqueue)]
        self._enqueues([event for _, event in found])
        wanted, self._model.untold = self._model.untold, []
        order = {(event.job_id, event.version): event for event in wanted}
        expect_equal(len(told), len(wanted), f"events among {[event.name for event in told]}")
        seen: dict[str, int] = {}
        for event in told:
            expect_equal(event, order.get((event.job_id, event.version)), "an event in the stream")
            expect(event.version > seen.get(event.job_id, 0), f"the events of job {event.job_id} are out of order")
            seen[event.job_id] = event.version
        for _, event in found:
            self._told.setdefault(event.job_id, []).append(event)

    def _enqueues(self, found: list[Event]) -> None:
        """Check that the enqueue of each job that tells all was told once, and before anything else of it."""
        model, moved = self._model, {job_id for job_id, events in self._told.items() if events}
        for event in found:
            if isinstance(event.move, Enqueue):
                wanted = None if event.job_id in moved else model.untold_enqueues.pop(event.job_id, None)
                expect_equal(event, wanted, "the enqueue of a job in the stream")
            moved.add(event.job_id)
        late = moved & model.untold_enqueues.keys()
        expect_equal(late, set(), "jobs that have events, but none of their enqueue")

    async def notices(self) -> None:
        """Check that the opening and the end of each session were told once."""
        page = await self._store.read_events(EventQuery(after=self._noticed, only="notices"))
        self._noticed = page.position
        for _, told in page.events:
            if isinstance(told, Notice) and told.kind == "session":
                self._sessions_told[told.subject, told.name == "SessionOpened"] += 1
        sessions = self._model.sessions.values()
        wanted = Counter({(session.name, True): 1 for session in sessions})
        wanted.update((session.name, False) for session in sessions if session.is_dead)
        expect_equal(self._sessions_told, wanted, "what was told of the opening and the end of sessions")

    def _rebuilt(self, job: Job) -> None:
        """Check that the events of a job rebuild it, from the job as it was enqueued and from the stored one alone."""
        told = self._told.get(job.id, [])
        stored = job if job.cause is None else replace(job, cause=replace(job.cause, traceback=""))
        expect_job(rebuild(job, told), stored, "the job that its events and the stored job rebuild")
        replayed = replay(self._model.enqueued[job.id], [*told, *untold(job, told)])
        expect_job(replace(replayed, cancel_request=job.cancel_request), stored, "the job that its events rebuild")

    async def _failures(self) -> None:
        found = await self._store.failure_groups(GROUPS)
        expect_equal({group.fingerprint: group for group in found}, self._model.failures, "the groups of failures")

    async def _log(self) -> None:
        """Check that the audit log has what people did, and nothing else."""
        found = await all_audit(self._store)
        positions = {entry.position for entry in found}
        expect_equal(len(positions), len(found), "different positions in the audit log")
        expect_equal(sorted(map(_sort_key, found)), sorted(map(_sort_key, self._model.audit)), "the audit log")

    async def _tally(self) -> None:
        model = self._model
        found = (await self._store.tally("status", Filter(), model.now)).counts
        wanted = Counter(_broad(status_of(job, model.now)) for job in model.jobs.values())
        counts: Counter[str] = Counter()
        for status, count in found.items():
            counts[_broad(status)] += count
        expect_equal(+counts, wanted, "the tally by status")
        if self._is_clear():
            exact = Counter(self._status(job) for job in model.jobs.values())
            expect_equal({name: count for name, count in found.items() if count}, dict(exact), "the exact tally")
        for by in KEPT:
            kept = (await self._store.tally(by, Filter(statuses=UNFINISHED), model.now)).counts
            names = Counter(str(getattr(job, by)) for job in model.jobs.values() if job.state != "succeeded")
            expect_equal(kept, dict(names), f"the kept counters by {by}")
        by_tenant = (await self._store.tally("tenant", Filter(queues=("q",)), model.now)).counts
        tenants = Counter(job.tenant for job in model.jobs.values() if job.queue == "q")
        expect_equal({name: count for name, count in by_tenant.items() if count}, dict(tenants), "the tally by tenant")

    def _is_clear(self) -> bool:
        """Whether nothing is held or paused, so that every status is exact."""
        held = any(rule.permits == 0 and name[0] != "dependency" for name, rule in self._model.rules.items())
        held = held or any(
            rule.permits == 0 for subject, rule in self._model.defaults.items() if subject != "dependency"
        )
        paused = any(rule.pauses for rule in self._model.rules.values())
        return not held and not paused and self._model.now >= self._model.latest

    def _status(self, job: Job) -> str:
        permits = self._model.rule(("dependency", job.dependency, "")).permits if job.dependency else None
        return status_of(job, self._model.now, held=permits == 0)

    async def _gauges(self, subject: Subject) -> None:
        running = self._model.running()
        wanted = {name: count for name, count in running.items() if name[0] == subject and count}
        found: dict[Name, int] = {
            (subject, limit_state.name, limit_state.queue or limit_state.dependency): limit_state.running
            for limit_state in await all_limit_states(self._store, subject)
            if limit_state.running
        }
        if subject == "tenant_dependency":
            # What runs of a tenant and a dependency together need not be counted while they have no limits.
            limited = {name for name, rule in self._model.rules.items() if rule.is_own}
            wanted = {name: count for name, count in wanted.items() if name in limited}
            found = {name: count for name, count in found.items() if name in limited}
        expect_equal(found, wanted, f"what runs, by {subject}")

    async def _sessions(self) -> None:
        model = self._model
        alive = (one for one in model.sessions.values() if not one.is_dead and one.expires_at >= model.now)
        wanted = sorted((session.read() for session in alive), key=lambda session: session.id)
        expect_equal(await self._store.sessions(model.now), wanted, "the sessions whose lease lasts")

    async def pruned(self, retention: Retention, pruned: Pruned) -> None:
        """Check a prune: jobs that are gone may be gone, and jobs that must go are gone."""
        model = self._model
        left = {job.id for job in await self.all_jobs()}
        gone = [job for job in model.jobs.values() if job.id not in left]
        counts = Counter(job.state for job in gone)
        expect_equal(counts, +Counter(_counts(pruned)), "jobs that went, against what prune says")
        archived = {(job.id, job.version) for job in retention.archived}
        for job in model.jobs.values():
            must, may = _fate(job, retention, archived, self._is_over(job, retention))
            expect(may or job.id in left, f"job {job.id}, {job.state} at {job.finished_at}, was pruned")
            expect(not must or job.id not in left, f"job {job.id}, {job.state} at {job.finished_at}, was not pruned")
        for job in gone:
            model.forget(job.id)
        model.forget_hours(retention.now)
        for queue in {job.queue for job in model.jobs.values()}:
            kept = sum(job.state == "succeeded" for job in model.jobs.values() if job.queue == queue)
            expect(kept <= retention.succeeded, f"{kept} succeeded jobs of {queue} were kept")
        await self._pruned_events(retention)
        listed = {(state.queue, state.name) for state in await all_limit_states(self._store, "tenant")}
        model.forget_tenants(listed)
        await self._pruned_failures(retention, pruned)
        await self._series()

    async def _series(self) -> None:
        """Check that series, to which a prune adds all that was counted before, equal a recount."""
        model = self._model
        until_at = max(model.now, model.latest) + HOUR_MS
        request = SeriesRequest(
            subject="queue",
            names=QUEUES,
            since_at=until_at - MAX_AUDITED_HOURS * HOUR_MS,
            until_at=until_at,
            step="hour",
        )
        found: Counter[tuple[str, str]] = Counter()
        for series in await self._store.series(request, model.now):
            for point in series.points:
                found.update({(series.name, name): count for name, count in point.counts.items()})
                found.update({(series.name, f"died {code}"): count for code, count in point.died.items()})
        expect_equal(found, model.counted, "what series have counted")

    async def _pruned_failures(self, retention: Retention, pruned: Pruned) -> None:
        """Check which groups of failures are gone; of those last seen at the same moment any may be."""
        model, before = self._model, retention.now - milliseconds(retention.failures_for)
        left = {group.fingerprint for group in await self._store.failure_groups(GROUPS)}
        gone = [model.failures.pop(name) for name in GROUPS if name in model.failures.keys() - left]
        kept = [group.last_seen_at for group in model.failures.values()]
        expect_equal(pruned.failures, len(gone), "groups of failures that went, against what prune says")
        expect(all(at >= before for at in kept), "a group of failures that was not seen for long is gone")
        expect(len(kept) <= retention.failures, f"{len(kept)} groups of failures were kept")
        for group in gone:
            is_over = len(kept) == retention.failures and group.last_seen_at <= min(kept)
            expect(group.last_seen_at < before or is_over, f"{group!r} was pruned before its time")

    async def names(self) -> None:
        """Check what is left after a prune of names: those of jobs, and those with limits of their own."""
        model = self._model
        configured = {name for name, rule in model.rules.items() if rule.is_own}
        needed = configured | {name for job in model.jobs.values() for name in names_of(job)}
        needed |= {("queue", queue, "") for subject, _, queue in needed if subject == "tenant"}
        subjects: tuple[Subject, ...] = get_args(Subject)
        found: set[Name] = {
            (subject, state.name, state.queue or state.dependency)
            for subject in subjects
            for state in await all_limit_states(self._store, subject)
        }
        expect_equal(found - needed, set(), "names without jobs that were not deleted")
        expect_equal(configured - found, set(), "names with limits, weights or pauses that were deleted")

    def _is_over(self, job: Job, retention: Retention) -> bool:
        others = (other for other in self._model.jobs.values() if other.queue == job.queue)
        return sum(other.state == "succeeded" for other in others) > retention.succeeded

    async def _pruned_events(self, retention: Retention) -> None:
        left = {(event.job_id, event.version) for _, event in await self._store.events(limit=100_000)}
        model = self._model
        for place, event in model.done.items():
            if place in left or place in model.forgotten or isinstance(event.move, Succeed):
                continue
            is_old = event.at + retention.events_for * 1_000 <= retention.now
            expect(is_old or event.job_id not in model.jobs, f"the event {event!r} was pruned before its time")
            model.forgotten.add(place)


def _sort_key(entry: AuditEntry) -> bytes:
    """Return an entry as bytes, without its position."""
    return msgspec.json.encode(replace(entry, position=0))


def _broad(status: str) -> str:
    """Return a status without what depends on gates and clocks."""
    return {"ready": "waiting", "scheduled": "waiting", "retrying": "waiting", "parked": "waiting"}.get(
        status, "running" if status == "stuck" else status
    )


def _counts(pruned: Pruned) -> dict[str, int]:
    return {"succeeded": pruned.succeeded, "cancelled": pruned.cancelled, "dead": pruned.dead}


def _fate(job: Job, retention: Retention, archived: set[tuple[str, int]], is_over: bool) -> tuple[bool, bool]:  # noqa: FBT001 - a fact about the job's queue
    """Return whether a job must go, and whether it may."""
    age = retention.now - (job.finished_at or 0)
    match job.state:
        case "succeeded":
            must = age > retention.succeeded_for * 1_000
            return must, must or is_over or age >= retention.succeeded_for * 1_000
        case "cancelled":
            return age > retention.cancelled_for * 1_000, age >= retention.cancelled_for * 1_000
        case "dead":
            return (job.id, job.version) in archived, (job.id, job.version) in archived
        case _:
            return False, False
