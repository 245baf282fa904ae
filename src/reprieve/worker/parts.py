"""The parts that a worker is composed of. This is the seam that other ways to run jobs use, as the test kit's drain.

A job goes through three parts, in this order:

1. fetch: `claims.claim(queues, limit, changes)` leases jobs, and in the same call settles the last changes;
2. run: `attempts.start(job, on_end)`, or `await attempts.run(job)`, makes one attempt and returns its outcome;
3. settle: `settlement.settle(job, outcome)` returns the change for the next claim.

`Worker` runs many jobs at once and fetches ahead; `testing.drain` runs one job after the other. Both keep `gates` fresh
(`refresh`) and share them (`share_all`, or the loop `run`), write what failures look like (`failures.write`, or its
loop `run`), give back the jobs that `unknown_tasks.remove_from` takes out of a claim, and run loops in the background:
`progress.run` writes what tasks report, `cancel_requests.watch` ends attempts that are asked to stop,
`unknown_tasks.run` warns. The caller opens the session with a heartbeat, keeps it alive, ends it, and calls
`attempts.close()` last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from reprieve.worker.attempt_counts import AttemptCounts
from reprieve.worker.attempts import Attempts
from reprieve.worker.cancel_requests import CancelRequests
from reprieve.worker.claims import SessionClaims
from reprieve.worker.failure_groups import FailureGroups
from reprieve.worker.gates import Gates
from reprieve.worker.in_flight import InFlightTable
from reprieve.worker.middleware import Middleware
from reprieve.worker.progress import Progress
from reprieve.worker.runner import Isolation, Runner
from reprieve.worker.settlement import Settlement
from reprieve.worker.supervised_loop import CHILD_SILENCE_SECONDS, Outage
from reprieve.worker.unknown_tasks import UnknownTasks
from reprieve.worker.worker_context import WorkerContext


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """The parts that fetch, run and settle the jobs of one session."""

    claims: SessionClaims
    attempts: Attempts
    counts: AttemptCounts
    """What is counted of the attempts; the claims hand it over."""
    settlement: Settlement
    gates: Gates
    progress: Progress
    failures: FailureGroups
    cancel_requests: CancelRequests
    unknown_tasks: UnknownTasks
    outage: Outage
    """Shared by everything here that calls the store, so that an outage is logged once."""

    @classmethod
    def assemble(
        cls,
        context: WorkerContext,
        session: str,
        *,
        in_flight: InFlightTable,
        slots: int,
        isolation: Isolation | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> Self:
        """Put the parts together, in a running event loop.

        Without `isolation`, tasks that ask for a process of their own run in this one. `middleware` goes around that of
        the app.
        """
        store, clock, registry = context.store, context.clock, context.registry
        max_bytes = context.settings.largest_payload
        outage = Outage(is_logged=in_flight.is_store_away, silence=CHILD_SILENCE_SECONDS)
        runner = Runner(
            registry,
            clock,
            middleware=[*middleware, *context.middleware],
            max_result_bytes=max_bytes,
            threads=slots,
            isolation=isolation,
        )
        progress = Progress(store, clock, session)
        counts = AttemptCounts(clock, context.settings.heartbeat)
        attempts = Attempts(
            runner, progress, slots=slots, max_progress_bytes=max_bytes, in_flight=in_flight, counts=counts
        )
        gates = Gates(store, clock, attempts.under_way)
        failures = FailureGroups(store, clock)
        runner.wants_full_traceback = failures.is_new
        settlement = Settlement(registry, gates, clock, max_bytes, failures)
        unknown_tasks = UnknownTasks(store, clock, registry, context.settings.unknown_after)
        return cls(
            claims=SessionClaims(store, clock, session, settlement, unknown_tasks, counts, outage),
            attempts=attempts,
            counts=counts,
            settlement=settlement,
            gates=gates,
            progress=progress,
            failures=failures,
            cancel_requests=CancelRequests(store, clock, session, attempts),
            unknown_tasks=unknown_tasks,
            outage=outage,
        )
