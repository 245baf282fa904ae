"""Checks of a claim against the model: was every lease allowed and fair, and was any job left behind.

Where the protocol leaves something free, the judge is lenient: a job may be surely claimable, surely not, or neither.
"""

import math
from collections import Counter
from collections.abc import Container, Sequence
from itertools import accumulate

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.duration import milliseconds
from reprieve.core.ids import created_at
from reprieve.core.job import Job
from reprieve.core.rate import BUCKETS, Rate
from reprieve.stores.protocol import Claim, Claimed
from reprieve.testing.conformance.expect import expect, expect_equal, expect_job
from reprieve.testing.conformance.machine.model import UNKNOWN_TURN, Model, Name, names_of

IN_A_ROW, MOST_SLOTS, OLDEST_EVERY = 3, 0.9, 16
NO_TENANT = ("", 1)
"""The tenant served last, and how often in a row: none yet."""
RECHECK_MS = 1_000
"""Milliseconds within which a session looks again at jobs that it excludes."""
CLOSE = 1e-4
"""Loads that differ by less count as equal."""


def judge_grants(model: Model, claim: Claim, claimed: Claimed, *, is_whole: bool = True) -> None:
    """Check the leases of a claim one by one, in the order of the result, and the jobs it left if it is complete."""
    expect(len(claimed.jobs) <= claim.limit, f"{len(claimed.jobs)} jobs for a limit of {claim.limit}")
    running = model.running()
    reached = 0
    for leased in claimed.jobs:
        job = model.jobs.get(leased.id)
        if job is None or job.state != "waiting":
            message = f"job {leased.id} was leased, but it is {job.state if job else 'unknown'}"
            raise AssertionError(message)
        expect(job.queue in claim.queues[reached:], f"job {job.id} of queue {job.queue} was leased out of order")
        reached = claim.queues.index(job.queue)
        expect(job.task not in claim.exclude, f"job {job.id} of the excluded task {job.task} was leased")
        _require_allowed(model, job, running, claim.now)
        if job.queue not in model.expired:
            _require_turn(model, job, running, claim)
        _grant(model, leased, claim, running)
        expect_job(leased, model.jobs[leased.id], "the leased job")
    model.turns.update(dict.fromkeys(model.expired, UNKNOWN_TURN))
    model.expired.clear()
    if is_whole and len(claimed.jobs) < claim.limit:
        _require_nothing_left(model, claim, claimed, running)


def _grant(model: Model, leased: Job, claim: Claim, running: Counter[Name]) -> None:
    before = model.jobs[leased.id]
    model.move(change.lease(before, claim.session, claim.now))
    model.leases[before.id] = (claim.session, claim.number)
    last, streak = model.turns.get(before.queue, NO_TENANT)
    if last == before.tenant:
        model.turns[before.queue] = (last, streak + 1 if streak else 0)
    else:
        model.turns[before.queue] = (before.tenant, 0 if last == UNKNOWN_TURN[0] else 1)
    model.served[before.queue, before.tenant] += 1
    for name in names_of(before):
        running[name] += 1
        if name in model.rules:
            model.rules[name].grants.append(claim.now)


def _require_allowed(model: Model, job: Job, running: Counter[Name], now: int) -> None:
    expect(job.due_at <= max(now, model.latest), f"job {job.id} was leased {job.due_at - now} ms early")
    expect(job.deadline_at is None or now <= job.deadline_at, f"job {job.id} was leased after its deadline")
    is_paused = job.waiting_for in model.rule(("queue", job.queue, "")).pauses
    expect(not is_paused or job.id in model.limbo, f"job {job.id} was leased though its {job.waiting_for} is paused")
    for name in names_of(job):
        rule, count = model.rule(name), running[name]
        expect(rule.permits is None or count < rule.permits, f"{name} has {rule.permits} permits, and {count} run")
        expect(rule.max_running is None or count < rule.max_running, f"{name} may run {rule.max_running}: {count} do")
        if rule.rate is not None:
            _require_rate(name, rule.rate, [*rule.grants[rule.since :], now], now)


def _require_rate(name: Name, rate: Rate, grants: list[int], now: int) -> None:
    window = milliseconds(rate.window)
    for start in {time for time in grants if now - window < time <= now}:
        seen = sum(start <= time < start + window for time in grants)
        expect(seen <= rate.count, f"{name} has {seen} leases in {rate.window} s, and {rate.count} are allowed")


def _is_open(model: Model, job: Job, running: Counter[Name]) -> bool:
    """Whether nothing but time keeps a waiting job: no hold, no limit, no pause."""
    if job.waiting_for in model.rule(("queue", job.queue, "")).pauses:
        return False
    for name in names_of(job):
        rule = model.rule(name)
        if rule.permits is not None and running[name] >= rule.permits:
            return False
        if rule.max_running is not None and running[name] >= rule.max_running:
            return False
    return True


def _opens_at(model: Model, job: Job, now: int) -> int:
    """Return when a job is claimable at the latest, by its due time and its rates."""
    at = job.due_at
    for name in names_of(job):
        rule = model.rules.get(name)
        if rule is None or rule.rate is None:
            continue
        # A meter counts in whole buckets, so it may see a grant a little longer than the window, and counts one that
        # came after the clock went back as if it had not.
        seen = (BUCKETS + 2) * rule.rate.bucket
        recent = [time + seen for time in accumulate(rule.grants, max) if time + seen > now]
        if len(recent) >= rule.rate.count:
            at = max(at, recent[-rule.rate.count])
    return at


def claimable(model: Model, queue: str, running: Counter[Name], now: int) -> dict[str, list[Job]]:
    """Return by tenant the jobs of a queue that are surely claimable, the ceiling of tenants aside."""
    found: dict[str, list[Job]] = {}
    for job in model.waiting((queue,)):
        is_in_time = job.deadline_at is None or now < job.deadline_at
        if job.due_at <= now and is_in_time and _is_open(model, job, running) and _opens_at(model, job, now) <= now:
            found.setdefault(job.tenant, []).append(job)
    return found


def _require_turn(model: Model, job: Job, running: Counter[Name], claim: Claim) -> None:
    """Check that it was this tenant's turn, and the turn of this priority."""
    waiting = _present(model, claimable(model, job.queue, running, claim.now), claim.exclude)
    (slots, prefetch), ceiling = model.capacity(job.queue), _ceiling(model, job.queue)
    count, weight = running["tenant", job.tenant, job.queue], model.rule(("tenant", job.tenant, job.queue)).weight
    last, streak = model.turns.get(job.queue, NO_TENANT)
    # Jobs that are fetched ahead may be picked a few at a time.
    is_run = last == job.tenant and streak < min(IN_A_ROW, 1 + prefetch // max(1, slots))
    total = sum(_weights(model, job.queue).values())
    for tenant in waiting:
        if tenant == job.tenant:
            continue
        other: Name = ("tenant", tenant, job.queue)
        others, others_weight = running[other], model.rule(other).weight
        expect(
            count < ceiling,
            f"tenant {job.tenant!r} got job {count + 1} of at most {ceiling} while {tenant!r} waits",
        )
        if others >= ceiling or not streak:
            continue
        is_relieved = last == tenant and streak >= IN_A_ROW and count < slots * weight / (weight + others_weight)
        expect(
            is_run or is_relieved or count / weight <= others / others_weight + CLOSE,
            f"tenant {job.tenant!r} with {count} slots (weight {weight}) was served before {tenant!r} "
            f"with {others} (weight {others_weight}); {last!r} was served {streak} times in a row",
        )
        expect(
            last != job.tenant or streak < IN_A_ROW or others + CLOSE >= slots * others_weight / total,
            f"tenant {job.tenant!r} was served {streak + 1} times in a row while {tenant!r} is below its share",
        )
    _require_lane(model, job, waiting.get(job.tenant, ()))


def _require_lane(model: Model, job: Job, waiting: Sequence[Job]) -> None:
    """Check that it was the turn of this job's lane among those of its tenant, and of the job if it has an SLA."""
    best = min((other.lane_priority for other in waiting), default=job.lane_priority)
    if job.lane_priority > best and (job.queue, job.tenant) not in model.unsure:
        served = model.served[job.queue, job.tenant] + 1
        message = (
            f"lane priority {job.lane_priority} of tenant {job.tenant!r} was picked before {best}, by pick {served}"
        )
        expect(served % OLDEST_EVERY == 0, message)
    for other in waiting:
        is_of_lane = names_of(other) == names_of(job) and other.lane_priority == job.lane_priority
        if is_of_lane and job.sla_at is not None and other.sla_at is not None:
            is_first = (job.sla_at, created_at(job.id)) <= (other.sla_at, created_at(other.id))
            expect(is_first, f"job {job.id} with the SLA {job.sla_at} was picked before {other.id} with {other.sla_at}")


def _ceiling(model: Model, queue: str) -> int:
    """Return how many jobs a tenant may hold while others are active."""
    slots, prefetch = model.capacity(queue)
    return max(1, math.floor(slots * MOST_SLOTS)) + prefetch


def _present(model: Model, jobs: dict[str, list[Job]], exclude: Container[str]) -> dict[str, list[Job]]:
    """Leave out what is excluded, and what may have been put aside by a gate or another limiter.

    What returns is bounded a claim, so its turn may come later.
    """
    free = {
        tenant: [
            job for job in waiting if job.task not in exclude and not any(map(model.has_limited, names_of(job)[2:]))
        ]
        for tenant, waiting in jobs.items()
    }
    return {tenant: waiting for tenant, waiting in free.items() if waiting}


def _weights(model: Model, queue: str) -> dict[str, float]:
    tenants = {job.tenant for job in model.jobs.values() if job.queue == queue}
    return {tenant: model.rule(("tenant", tenant, queue)).weight for tenant in tenants}


def _require_nothing_left(model: Model, claim: Claim, claimed: Claimed, running: Counter[Name]) -> None:
    if claimed.next_at is not None and claimed.next_at <= claim.now:
        return
    latest = math.inf if claimed.next_at is None else claimed.next_at
    for queue in claim.queues:
        ceiling = _ceiling(model, queue)
        for job in model.waiting((queue,)):
            is_at_ceiling = running["tenant", job.tenant, queue] >= ceiling
            if is_at_ceiling or job.deadline_at is not None or not _is_open(model, job, running):
                continue
            at = _opens_at(model, job, claim.now)
            if job.task in claim.exclude:
                is_soon = latest <= claim.now + RECHECK_MS
                expect(at > claim.now or is_soon, f"job {job.id} is excluded, and the claim does not look again")
                continue
            expect(at > claim.now, f"job {job.id} could be leased, and was left behind")
            expect(at >= latest, f"job {job.id} can be leased at {at}, and the claim says to look at {claimed.next_at}")


def expire(model: Model, job: Job, found: Job | None, now: int) -> None:
    """Follow a store that let a job die in a claim because its deadline had passed, or left it for later.

    The dead job may have been its tenant's turn, so whose turn it is now cannot be known from outside.
    """
    if found is None or found.state != "dead":
        return
    wanted = change.expire(job, now)
    expect_job(found, wanted.job, "a job past its deadline")
    model.move(wanted)
    model.unsure.add((job.queue, job.tenant))
    model.expired.add(job.queue)


def judge_expired(model: Model, job: Job) -> None:
    """Check a job that a store ended because its time had come, and let it end in the model."""
    known = model.jobs[job.id]
    expect(known.state == "waiting", f"job {job.id} expired while it was {known.state}")
    wanted = change.expire(known, model.now)
    expect_job(job, wanted.job, "a job that expired")
    if known.deadline_at is None or known.deadline_at > model.now:
        is_parked = known.expires_at is not None and known.expires_at <= model.now
        is_held = any(model.rule(name).permits == 0 for name in names_of(known))
        expect(is_parked and is_held, f"job {job.id} expired before its time: {known!r}")
    model.move(wanted)


def same_jobs(first: tuple[Job, ...], again: tuple[Job, ...], held: set[str]) -> None:
    """Check the jobs of a repeated claim: those of the first time, but for what the session lost since."""
    marked = {job.id: replace(job, cancel_request=None) for job in first}
    for job in again:
        expect_job(replace(job, cancel_request=None), marked.get(job.id, job), "a job of a repeated claim")
        expect(job.id in marked, f"job {job.id} was leased by a repeat of another claim")
    missing = held & marked.keys() - {job.id for job in again}
    expect_equal(missing, set(), "jobs that a repeated claim left out")
