"""Settlement: turns the outcome of an attempt into the change that settles its job."""

from functools import partial

from msgspec.structs import replace

from reprieve.clock import Clock
from reprieve.core import change, presets
from reprieve.core.change import Change
from reprieve.core.decide import Conditions, decide
from reprieve.core.failure import Failure
from reprieve.core.job import Job
from reprieve.core.move import Succeed
from reprieve.core.outcome import Failed, Outcome, Succeeded
from reprieve.core.policy import Override, resolve
from reprieve.core.verdict import Verdict
from reprieve.errors import ValidationError
from reprieve.registry import Registry
from reprieve.rng import draw
from reprieve.stores.check import check_change
from reprieve.worker.failure_groups import FailureGroups
from reprieve.worker.gates import Gates
from reprieve.worker.job_logging import log_broken_policy, log_settled, log_undecided
from reprieve.worker.runner import failed_by


class Settlement:
    """Settles attempts by the policies of the tasks and the gates of their dependencies."""

    def __init__(
        self, registry: Registry, gates: Gates, clock: Clock, largest_payload: int, failures: FailureGroups
    ) -> None:
        """Take what decisions depend on, how many bytes of a result the store takes, and what describes failures."""
        self._registry = registry
        self._gates = gates
        self._clock = clock
        self._largest_payload = largest_payload
        self._failures = failures

    def settle(self, job: Job, outcome: Outcome) -> Change:
        """Return the change that settles an attempt, and log it unless it is a success. Never raises.

        The gate of the job's dependency records the outcome. Where the decision itself fails, the attempt counts as a
        failure under the standard policy.
        """
        try:
            settled = self._decide(job, outcome)
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - logged; backoffs may be the application's
            log_undecided(job, error)
            failed = failed_by(error, job)
            # The bug is not the task's: whatever its class, another attempt may help once it is fixed.
            unknown = Verdict(kind="unknown", code=failed.verdict.code, rule="settlement")
            settled = self._decide_by_standard(job, replace(failed, verdict=unknown))
        if not isinstance(settled.event.move, Succeed):
            log_settled(settled, outcome.failure if isinstance(outcome, Failed) else None, before=job)
            if isinstance(outcome, Failed) and settled.job.cause is not None:
                self._failures.add(settled.job.cause, outcome.failure)
        return settled

    def _decide(self, job: Job, outcome: Outcome) -> Change:
        if job.dependency:
            self._gates.record(job, outcome)
        now = self._clock.next()
        complain = partial(log_broken_policy, job)
        conditions = Conditions(now=now, u=draw(), gate=self._gates.of(job.dependency), on_error=complain)
        decision = decide(job, outcome, self._registry.policy_of(job), conditions)
        settled = change.settle(job, decision, now)
        if not isinstance(outcome, Succeeded) or outcome.result is None:
            return settled
        declaration = self._registry.get(job.task)
        return replace(settled, result=outcome.result, result_ttl=declaration.result_ttl)

    def fail(self, refused: Change, job: Job) -> Change:
        """Return the change that settles an attempt as failed, because the store cannot write how it was settled.

        `refused` is that settlement, and `job` the job as the store still has it. If the task has succeeded, its work
        is done and only its result cannot be kept: a retry would not help.
        """
        is_done = isinstance(refused.event.move, Succeed)
        failed = Failed(
            failure=Failure(message=self._why_refused(refused), code="unsettled"),
            verdict=Verdict(kind="permanent" if is_done else "unknown", code="unsettled", rule="settlement"),
        )
        settled = self._decide_by_standard(job, failed)
        log_settled(settled, failed.failure, before=job)
        return settled

    def _why_refused(self, refused: Change) -> str:
        try:
            check_change(refused, self._largest_payload)
        except ValidationError as error:
            return str(error)
        return f"the store cannot write how the attempt ended ({type(refused.event.move).__name__})"

    def _decide_by_standard(self, job: Job, failed: Failed) -> Change:
        """Settle a failure by the standard policy, with the job's own limit of attempts."""
        now = self._clock.next()
        policy = resolve(presets.standard, Override(max_attempts=job.max_attempts))
        return change.settle(job, decide(job, failed, policy, Conditions(now=now, u=draw())), now)
