"""One history on a store and a model side by side: each call is made on both, and the results are compared."""

from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.decide import Conditions, decide
from reprieve.core.duration import milliseconds
from reprieve.core.job import CancelRequest, Job
from reprieve.core.move import Succeed
from reprieve.core.outcome import Crashed, Succeeded
from reprieve.errors import SessionDead, StaleCall
from reprieve.stores.protocol import (
    NAMES_INTERVAL_SECONDS,
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    FailureGroup,
    Filter,
    Heartbeat,
    LimitUpdate,
    Retention,
)
from reprieve.testing.conformance.expect import expect, expect_equal, expect_job
from reprieve.testing.conformance.machine.audit import Audit
from reprieve.testing.conformance.machine.driver import Driver, OpenStore
from reprieve.testing.conformance.machine.grants import expire, judge_expired, judge_grants, same_jobs
from reprieve.testing.conformance.machine.model import Model, Session
from reprieve.testing.conformance.machine.shapes import OUTCOMES, POLICY, QUEUES, TASKS, Shape
from reprieve.testing.conformance.stage import PROGRAM

START = 1_700_000_000_000
LEASES = (30.0, 600.0, 60.0)
"""Seconds that each of the three workers lives without a heartbeat."""

SLOTS = (2, 10, 20)
"""Their slots: what one tenant may take changes much when one of them dies."""

RESULT_KEPT = 600.0

MAX_EXPIRY_LATENESS_MS = 3_000
"""How late a store may find that a job has expired."""

MAX_EXPIRE_CALLS = 10_000
"""Calls of `expire` after which it must have no more to do."""


class Play:
    """A store, its model, and three workers."""

    def __init__(self, open_store: OpenStore) -> None:
        """Open the store and the workers' sessions."""
        self.driver = Driver(open_store)
        self.store = self.driver.store
        self.model = Model(START)
        self.audit = Audit(self.store, self.model)
        self.workers: list[Session] = []
        self.batches: list[list[Job]] = []
        self.leases: list[Job] = []
        """Every lease that was ever returned, for workers that settle late."""
        self.changes: list[Change] = []
        for number in range(len(LEASES)):
            self.workers.append(self._open(number))

    def step(self, jump: int) -> None:
        """Let time pass, or go back a little."""
        self.model.now += jump
        self.model.latest = max(self.model.latest, self.model.now)

    def busy(self, number: int) -> int:
        """Return a worker that holds something, this one or the next, or this one if none does."""
        order = [(number + other) % len(self.workers) for other in range(len(self.workers))]
        return next((worker for worker in order if self.workers[worker].hand), number)

    def worker(self, number: int) -> Session:
        """Return a worker's session; one that knows of its death has opened another."""
        if self.workers[number].is_given_up:
            self.workers[number] = self._open(number)
        return self.workers[number]

    def _open(self, number: int) -> Session:
        model = self.model
        name = f"worker-{number}-{len(model.sessions)}"
        heartbeat = Heartbeat(
            session=name,
            now=model.now,
            lease=LEASES[number],
            slots=SLOTS[number],
            is_new=True,
            host=f"host-{number}",
            pid=100 + number,
            version="1.0",
            tasks=TASKS,
        )
        session = Session(model.now + milliseconds(LEASES[number]), heartbeat, heartbeat)
        expect(self.driver.write(lambda: self.store.heartbeat(heartbeat))[0], "a session that was just opened lives")
        model.sessions[name] = session
        return session

    def enqueue(self, shapes: Sequence[Shape]) -> None:
        """Enqueue new jobs."""
        now = self.model.now
        self.enqueue_jobs([shape.job(self.store.new_id(now, shape.queue), now) for shape in shapes])

    def enqueue_jobs(self, jobs: list[Job]) -> None:
        """Enqueue these jobs, perhaps not for the first time."""
        ids, _ = self.driver.write(lambda: self.store.enqueue(jobs, self.model.now))
        expect_equal(len(ids), len(jobs), "ids of an enqueue")
        for job, result in zip(jobs, ids, strict=True):
            if job.id in self.model.jobs:
                expect_equal(result, job.id, "the id of a job that is stored already")
                continue
            holder = self.model.holder(job)
            if holder is not None:
                expect_equal(result, holder, f"the id for the key {job.key!r} that is taken")
                continue
            expect_equal(result, job.id, "the id of a new job")
            self.model.add(job)
        self.batches.append(jobs)

    def settlement(self, job: Job, outcome: int) -> Change:
        """Decide what follows an attempt as a worker does."""
        kind, gate = OUTCOMES[outcome]
        now, known = self.model.now, self.model.jobs.get(job.id)
        if known is not None and known.version == job.version and outcome % 2:
            # Every other worker has received the cancel request in time.
            job = known
        decision = decide(job, kind, POLICY, Conditions(now=now, u=0.5, gate=gate if job.dependency else None))
        made = change.settle(job, decision, now)
        result = kind.result if isinstance(kind, Succeeded) else None
        return made if result is None else replace(made, result=result, result_ttl=RESULT_KEPT)

    def claim(
        self,
        number: int,
        limit: int,
        queues: tuple[str, ...],
        changes: Sequence[Change] = (),
        exclude: tuple[str, ...] = (),
    ) -> Claimed | None:
        """Settle and claim; None when the session turns out to be dead."""
        session, model = self.worker(number), self.model
        session.number += 1
        claim = Claim(
            session=session.name,
            number=session.number,
            now=model.now,
            queues=queues,
            limit=limit,
            changes=tuple(changes),
            exclude=exclude,
            starts=tuple(job for job in session.starts if model.holds(session.name, job)),
        )
        session.starts.clear()
        self.changes.extend(changes)
        if session.is_dead:
            self._expect_death(session, claim)
            return None
        claimed, _ = self.driver.write(lambda: self.store.claim(claim))
        model.tell_starts(claim)
        self._compare(claimed.results, claim.changes)
        for made in changes:
            session.hand.pop(made.job.id, None)
        self._expire(claim)
        judge_grants(model, claim, claimed)
        self._receive(session, claim, claimed)
        return claimed

    def _expect_death(self, session: Session, claim: Claim) -> None:
        """A dead session leases nothing; what it settles counts as far as its leases still stand."""
        session.is_given_up = True
        try:
            claimed = self.driver.run(self.store.claim(claim))
        except SessionDead:
            # Once everything was taken back that it held, a session may be forgotten: nothing it settles can count.
            mine = [made for made in claim.changes if made.session == session.name]
            standing = [made for made in mine if "applied" in self.model.judge(made)]
            expect(not standing, f"changes of the dead session {session.name} were not judged: {standing!r}")
            return
        expect(bool(claim.changes), f"the dead session {session.name} returned {claimed!r}")
        expect_equal(claimed.jobs, (), f"jobs leased to the dead session {session.name}")
        self._compare(claimed.results, claim.changes)

    def _compare(self, results: Sequence[ChangeResult], changes: Sequence[Change], *, is_repeat: bool = False) -> None:
        expect_equal(len(results), len(changes), "results to changes")
        for result, made in zip(results, changes, strict=True):
            wanted = self.model.judge(made)
            if self.model.carry_out(made) == "applied":
                if is_repeat:
                    wanted = frozenset({"already"})
                if isinstance(made.event.move, Succeed):
                    self._expect_result(made)
            expect(result in wanted, f"{made.event!r} returned {result}, not {' or '.join(sorted(wanted))}")

    def _expect_result(self, made: Change) -> None:
        expect_equal(self.driver.run(self.store.result(made.job.id)), made.result, "the result of a job")

    def _expire(self, claim: Claim) -> None:
        waiting = self.model.waiting(claim.queues)
        late = [job for job in waiting if job.deadline_at is not None and job.deadline_at <= claim.now]
        if not late:
            return
        page = self.driver.run(self.store.find(Filter(ids=tuple(job.id for job in late)), claim.now, limit=len(late)))
        found = {job.id: job for job in page.jobs}
        for job in late:
            expire(self.model, job, found.get(job.id), claim.now)

    def repeat_claim(self, number: int) -> None:
        """Repeat the last claim of a session, as after a lost reply."""
        session = self.workers[number]
        if session.last is None or session.is_dead:
            return
        claim, first = session.last
        claim = replace(claim, now=self.model.now)
        claimed = self.driver.run(self.store.claim(claim))
        if not first.jobs and "applied" not in first.results and not claim.starts:
            self._follow(session, claim, first, claimed)
            return
        expect_equal(claimed.results, first.results, "the results of a repeated claim")
        mine = (session.name, claim.number)
        same_jobs(first.jobs, claimed.jobs, {job_id for job_id, lease in self.model.leases.items() if lease == mine})
        if claim.number > 1:
            self._expect_stale(replace(claim, number=claim.number - 1, now=self.model.now))

    def _follow(self, session: Session, claim: Claim, first: Claimed, claimed: Claimed) -> None:
        """Follow the repeat of a claim that had done nothing: it may return the same result, or a new one."""
        for made, before, result in zip(claim.changes, first.results, claimed.results, strict=True):
            wanted = self.model.judge(made) | {before}
            expect(result in wanted, f"{made.event!r} returned {result}, not {' or '.join(sorted(wanted))}")
            if result == "applied":
                self.model.carry_out(made)
        self._expire(claim)
        judge_grants(self.model, claim, claimed, is_whole=False)
        self._receive(session, claim, claimed)

    def _receive(self, session: Session, claim: Claim, claimed: Claimed) -> None:
        session.last = (claim, claimed)
        session.hand.update((job.id, job) for job in claimed.jobs)
        session.starts += [job for job in claimed.jobs if job.tells_all]
        self.leases.extend(claimed.jobs)

    def _expect_stale(self, claim: Claim) -> None:
        try:
            self.driver.run(self.store.claim(claim))
        except StaleCall:
            return
        message = f"call {claim.number} of {claim.session} returned after a later one"
        raise AssertionError(message)

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply changes that no session makes."""
        results, is_repeat = self.driver.write(lambda: self.store.apply(changes, self.model.now))
        self._compare(results, changes, is_repeat=is_repeat)
        self.changes.extend(changes)

    def heartbeat(self, number: int, prefetch: int = 0, queues: tuple[str, ...] = ()) -> None:
        """Heartbeat for a session that may not know of its death, which fetches more or less ahead from now on."""
        session, model = self.workers[number], self.model
        if session.is_given_up:
            return
        lease = LEASES[number]
        heartbeat = Heartbeat(
            session=session.name,
            now=model.now,
            lease=lease,
            slots=SLOTS[number],
            prefetch=prefetch,
            running=len(session.hand),
            queues=queues,
        )
        is_alive = self.driver.run(self.store.heartbeat(heartbeat))
        expect_equal(is_alive, not session.is_dead, f"whether {session.name} lives")
        if is_alive:
            session.expires_at = model.now + milliseconds(lease)
            session.last_heartbeat = heartbeat
        else:
            session.is_given_up = True

    def recover(self, limit: int) -> None:
        """Recover what dead sessions hold."""
        model = self.model
        found = self.driver.run(self.store.recover(model.now, limit))
        for session in model.sessions.values():
            session.is_dead = session.is_dead or session.expires_at < model.now
        lost = model.lost()
        expect_equal(len(found), min(limit, len(lost)), "jobs to recover")
        expect_equal({job.id for job in found} - lost.keys(), set(), "jobs to recover that no session lost")
        for job in found:
            expect_job(job, lost[job.id], "a job to recover")
        conditions = Conditions(now=model.now, u=0.5)
        self.apply([change.settle(job, decide(job, Crashed(), POLICY, conditions), model.now) for job in found])

    def expire(self, limit: int) -> None:
        """End waiting jobs whose time has come; those that came long ago must all end."""
        model, calls, has_more = self.model, 0, True
        while has_more:
            expired = self.driver.run(self.store.expire(model.now, limit))
            expect(len(expired.jobs) <= limit, f"expire with a limit of {limit} ended {len(expired.jobs)} jobs")
            for job in expired.jobs:
                judge_expired(model, job)
            calls, has_more = calls + 1, expired.has_more
            expect(calls < MAX_EXPIRE_CALLS, f"expire says after {calls} calls that there is more")
        latest = model.now - MAX_EXPIRY_LATENESS_MS
        left = [job.id for job in model.waiting(QUEUES) if job.deadline_at is not None and job.deadline_at <= latest]
        expect_equal(left, [], "jobs that wait long after their deadline")

    def end(self, number: int) -> None:
        """End a session that may still hold jobs."""
        session = self.workers[number]
        if session.is_dead:
            return
        heartbeat = Heartbeat(session=session.name, now=self.model.now, lease=0, slots=SLOTS[number])
        self.driver.run(self.store.heartbeat(heartbeat))
        session.is_dead = session.is_given_up = True

    def ask_to_stop(self, job: Job, request: CancelRequest) -> None:
        """Ask a job to stop."""
        (is_taken,) = self.driver.run(
            self.store.annotate([Annotation(job_id=job.id, now=self.model.now, cancel=request)])
        )
        expect_equal(is_taken, job.state == "running", f"whether a {job.state} job is asked to stop")
        if is_taken:
            self.model.ask_to_stop(job, request)

    def note(self, job: Job, session: str) -> None:
        """Note progress, of a session's own job or of another's."""
        annotation = Annotation(job_id=job.id, now=self.model.now, session=session, progress=b"half")
        (is_taken,) = self.driver.run(self.store.annotate([annotation]))
        expect_equal(is_taken, job.session == session, f"whether {session} notes progress for {job.session!r}")

    def update_limits(self, updates: Sequence[LimitUpdate]) -> None:
        """Change gates, limits, weights and pauses."""
        self.driver.run(self.store.update_limits(updates, self.model.now, PROGRAM))
        for update in updates:
            self.model.update_limits(update)

    def describe_failures(self, groups: Sequence[FailureGroup]) -> None:
        """Describe groups of failures."""
        self.driver.write(lambda: self.store.describe_failures(groups))
        self.model.describe_failures(groups)

    def prune(self, retention: Retention) -> bool:
        """Forget what has ended; return whether that is all."""
        self.driver.run(self.audit.events())
        self.driver.run(self.audit.notices())
        pruned = self.driver.run(self.store.prune(retention))
        self.driver.run(self.audit.pruned(retention, pruned))
        return pruned.is_all

    def forget_names(self) -> None:
        """Let time pass until the next search for names without jobs, and prune until nothing is left to delete."""
        self.step(self.model.latest - self.model.now + 2 * milliseconds(NAMES_INTERVAL_SECONDS))
        retention = Retention(now=self.model.now, succeeded=0, succeeded_for=0.0, cancelled_for=0.0)
        while not self.prune(retention):
            pass
        self.driver.run(self.audit.names())
