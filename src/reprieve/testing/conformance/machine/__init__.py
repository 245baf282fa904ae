"""A state machine that searches for histories in which a store breaks its promises. Needs hypothesis.

It plays enqueues, claims, failures, deaths, zombies, operators, gates, limits, jumping clocks, prunes and lost replies
on a store and on a plain model at once, and compares them after every step. For a store of your own:

    TestMyStore = make_machine(open_my_store).TestCase
"""

import sys
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.job import Job
from reprieve.core.status import STUCK_AFTER_SECONDS
from reprieve.errors import ConcurrentModification, IllegalMove, InvalidRetryState
from reprieve.stores.capabilities import FaultPoint
from reprieve.stores.protocol import LimitUpdate, Store
from reprieve.testing.conformance.machine.drain import drain
from reprieve.testing.conformance.machine.driver import OpenStore
from reprieve.testing.conformance.machine.play import Play
from reprieve.testing.conformance.machine.shapes import (
    CANCEL_REQUESTS,
    GROUPS,
    LIMIT_UPDATES,
    OUTCOMES,
    QUEUES,
    REQUESTS,
    SHAPES,
    STEPS,
    Shape,
    failure_group,
    limit_update,
    retentions,
    shape,
)

__all__ = ["StoreMachine", "make_machine"]

AUDIT_EVERY = 10
"""Steps from one full audit to the next."""

FORGET_EVERY = 5
"""Steps from one in which names may be forgotten to the next: it takes a long time, in which jobs become due."""

_WORKERS = st.integers(0, 2)
_ANY = st.integers(0, 999)
_LIMIT = st.sampled_from((100, 2, 1))
_OUTCOME = st.sampled_from((0, 1, 0, 1, *range(len(OUTCOMES))))
_SHAPE = st.integers(0, SHAPES - 1).map(shape)
_LIMIT_UPDATE = st.integers(0, len(LIMIT_UPDATES) - 1).map(limit_update)
_SERVED = st.sampled_from(((), (), ("q",), ("r", "q")))
_QUEUES = st.sampled_from((("q",), ("q", "r"), ("r", "q")))
_EXCLUDE = st.sampled_from(((), ("render",), ("send",), ("render", "send", "unheard-of")))


async def _no_store() -> Store:
    message = "make a machine of your store with make_machine"
    raise NotImplementedError(message)


class StoreMachine(RuleBasedStateMachine):
    """Histories of a store; `open_store` opens a fresh, empty one."""

    open_store: ClassVar[OpenStore] = staticmethod(_no_store)

    def __init__(self) -> None:
        """Open a store for this history."""
        super().__init__()
        self.play = Play(type(self).open_store)
        self.steps = 0
        self.can_fail = self.play.driver.can_fail

    @initialize(shapes=st.lists(_SHAPE, min_size=1, max_size=10))
    def begin(self, shapes: list[Shape]) -> None:
        """Start with some jobs, one of them running."""
        self.play.enqueue(shapes)
        self.play.claim(2, 3, ("q",))

    @rule(shapes=st.lists(_SHAPE, min_size=1, max_size=5))
    def enqueue(self, shapes: list[Shape]) -> None:
        """Enqueue a few jobs."""
        self.play.enqueue(shapes)

    @rule(worker=_WORKERS, limit=st.integers(0, 6), queues=_QUEUES, outcomes=st.lists(_OUTCOME, max_size=4))
    def work(self, worker: int, limit: int, queues: tuple[str, ...], outcomes: list[int]) -> None:
        """A worker settles some of what it holds and claims more."""
        worker = self.play.busy(worker) if outcomes else worker
        hand = list(self.play.worker(worker).hand.values())
        settled = [self.play.settlement(job, outcome) for job, outcome in zip(hand, outcomes, strict=False)]
        self.play.claim(worker, limit, queues, settled)

    @rule(worker=_WORKERS, queues=_QUEUES)
    def work_a_lot(self, worker: int, queues: tuple[str, ...]) -> None:
        """A worker is done with everything and takes what it can."""
        hand = list(self.play.worker(worker).hand.values())
        self.play.claim(worker, 10, queues, [self.play.settlement(job, 0) for job in hand])

    @rule(worker=_WORKERS, outcome=_OUTCOME, limit=st.integers(1, 3), exclude=_EXCLUDE)
    def work_on(self, worker: int, outcome: int, limit: int, exclude: tuple[str, ...]) -> None:
        """A worker is done with one job, and takes a few others, perhaps only of tasks that it knows."""
        worker = self.play.busy(worker)
        hand = list(self.play.worker(worker).hand.values())[:1]
        changes = [self.play.settlement(job, outcome) for job in hand]
        self.play.claim(worker, limit, ("q", "r"), changes, exclude)

    @precondition(lambda self: self.play.leases)
    @rule(which=_ANY, outcome=_OUTCOME, worker=_WORKERS, how=st.integers(0, 4))
    def come_back_late(self, which: int, outcome: int, worker: int, how: int) -> None:
        """A worker settles a job that it lost, or one that it never had."""
        job = self.play.leases[-1 - which % min(len(self.play.leases), 20)]
        made = self.play.settlement(job, outcome)
        if how == 0:
            made = replace(made, session=self.play.workers[worker].name)
        elif how == 1:
            made = replace(made, session="")
        if how == 4:  # noqa: PLR2004 - one way of five
            self.play.apply([made, made])
        elif how == 3:  # noqa: PLR2004 - another
            self.play.apply([made])
        else:
            self.play.claim(worker, 0, (), [made])

    @rule(what=st.sampled_from(("claim", "change", "enqueue")), which=_ANY)
    def repeat(self, what: str, which: int) -> None:
        """A reply was lost, and the call is repeated, perhaps much later."""
        play = self.play
        if what == "claim":
            play.repeat_claim(which % len(play.workers))
        elif what == "change" and play.changes:
            play.apply([play.changes[-1 - which % min(len(play.changes), 20)]])
        elif what == "enqueue":
            batch = play.batches[which % len(play.batches)]
            # The id of a pruned job is free: enqueueing it again creates a new job.
            if all(job.id in play.model.jobs for job in batch):
                play.enqueue_jobs(batch)

    @rule(worker=_WORKERS, prefetch=st.sampled_from((0, 0, 1, 30)), queues=_SERVED)
    def heartbeat(self, worker: int, prefetch: int, queues: tuple[str, ...]) -> None:
        """A worker sends a heartbeat; it may serve other queues from now on, and fetch more or less ahead."""
        self.play.heartbeat(worker, prefetch, queues)

    @rule(how=st.sampled_from(("silent", "nearly silent", "stopped", "as before")), worker=_WORKERS, limit=_LIMIT)
    def recover(self, how: str, worker: int, limit: int) -> None:
        """A worker sends no heartbeat until, or nearly until, its lease ends, or stops; recovery takes its jobs."""
        session = self.play.workers[worker]
        if how == "stopped":
            self.play.end(worker)
        elif how != "as before" and not session.is_dead:
            self.play.step(max(0, session.expires_at + (how == "silent") - self.play.model.now))
        self.play.recover(limit)

    @rule(is_later=st.booleans(), limit=_LIMIT)
    def expire(self, is_later: bool, limit: int) -> None:  # noqa: FBT001 - drawn
        """A worker ends jobs that wait past their deadline, perhaps just when one of them passes."""
        model = self.play.model
        deadlines = [job.deadline_at for job in model.waiting(QUEUES) if job.deadline_at is not None]
        if is_later and deadlines:
            self.play.step(max(0, min(deadlines) - model.now))
        self.play.expire(max(1, limit))

    @precondition(lambda self: self.play.model.jobs)
    @rule(which=_ANY, first=st.integers(0, 4), second=st.integers(0, 4))
    def operate(self, which: int, first: int, second: int) -> None:
        """Two people act on the same version of a job."""
        job = self._job(which)
        made = [self._request(job, kind, person) for person, kind in enumerate((first, second))]
        changes = [item for item in made if item is not None]
        if changes:
            self.play.apply(changes)

    def _request(self, job: Job, kind: int, person: int) -> Change | None:
        now = self.play.model.now
        try:
            match kind:
                case 0:
                    return change.cancel(job, REQUESTS[person], now)
                case 1:
                    return change.revive(job, now)
                case 2:
                    return change.retry(job, REQUESTS[2], now, STUCK_AFTER_SECONDS)
                case _:
                    return change.retry(job, REQUESTS[person], now, STUCK_AFTER_SECONDS if kind == 3 else 0.0)  # noqa: PLR2004 - one kind of five
        except (ConcurrentModification, InvalidRetryState, IllegalMove):
            return None

    @precondition(lambda self: self.play.leases)
    @rule(which=_ANY, worker=_WORKERS, is_request=st.booleans())
    def annotate(self, which: int, worker: int, is_request: bool) -> None:  # noqa: FBT001 - drawn
        """A person sends a cancel request, or a worker stores progress."""
        job = self.play.model.jobs.get(self.play.leases[-1 - which % len(self.play.leases)].id)
        if job is not None and is_request:
            self.play.ask_to_stop(job, CANCEL_REQUESTS[which % len(CANCEL_REQUESTS)])
        elif job is not None:
            self.play.note(job, self.play.workers[worker].name)

    @rule(which=st.lists(st.integers(0, len(GROUPS) - 1), min_size=1, max_size=2))
    def describe_failures(self, which: list[int]) -> None:
        """Workers describe groups of failures, some again."""
        self.play.describe_failures([failure_group(number, self.play.model.now) for number in which])

    @rule(updates=st.lists(_LIMIT_UPDATE, min_size=1, max_size=2))
    def update_limits(self, updates: list[LimitUpdate]) -> None:
        """Hold, release, limit or pause a subject."""
        self.play.update_limits(updates)

    @rule(jump=st.sampled_from(STEPS))
    def pass_time(self, jump: int) -> None:
        """Time passes, or a clock goes back a little."""
        self.play.step(jump)

    @precondition(lambda self: any(job.state == "waiting" for job in self.play.model.jobs.values()))
    @rule(early=st.booleans())
    def wait_for_the_next(self, early: bool) -> None:  # noqa: FBT001 - drawn
        """Time passes until a job is due, or to just before."""
        now = self.play.model.now
        due = [job.due_at for job in self.play.model.jobs.values() if job.state == "waiting" and job.due_at > now]
        if due:
            self.play.step(min(due) - now - early)

    @rule(which=_ANY, how=_ANY)
    def prune(self, which: int, how: int) -> None:
        """Prune ended jobs; some dead jobs were archived, perhaps in an older version."""
        dead = [job for job in self.play.model.jobs.values() if job.state == "dead"]
        archived = [replace(job, version=job.version - how % 2) for job in dead[: which % 3]]
        ways = retentions(self.play.model.now)
        self.play.prune(replace(ways[how % len(ways)], archived=tuple(archived)))

    @precondition(lambda self: self.steps % FORGET_EVERY == 0)
    @rule()
    def forget_names(self) -> None:
        """Time passes, and names without jobs are deleted."""
        self.play.forget_names()

    @precondition(lambda self: self.can_fail)
    @rule(point=st.sampled_from(("before", "after")))
    def fail_the_next_write(self, point: FaultPoint) -> None:
        """The next write is lost, or only its reply, and it is repeated."""
        self.play.driver.fault = point

    def _job(self, which: int) -> Job:
        jobs = self.play.model.jobs
        return list(jobs.values())[which % len(jobs)]

    def check_invariants(self, *arguments: object) -> None:
        """Compare store and model after every step: what it touched, and every few steps everything."""
        super().check_invariants(*arguments)  # type: ignore[arg-type, no-untyped-call, unused-ignore] # as hypothesis calls it
        self.steps += 1
        look = self.play.audit.everything if self.steps % AUDIT_EVERY == 0 else self.play.audit.look
        self.play.driver.run(look())

    def teardown(self) -> None:
        """Audit the store and drain it, unless the history has failed already."""
        try:
            if sys.exc_info()[0] is None:
                self.play.driver.run(self.play.audit.everything())
                drain(self.play)
                self.play.driver.run(self.play.audit.everything())
        finally:
            self.play.driver.close()


def make_machine(open_store: OpenStore) -> type[StoreMachine]:
    """Make the machine for a store; `open_store` opens a fresh, empty one, and the machine closes it."""
    return type("Histories", (StoreMachine,), {"open_store": staticmethod(open_store)})
