"""Settlement: turns the outcome of an attempt into the change that settles its job."""

from functools import partial

from msgspec.structs import replace

from reprieve.clock import Clock
from reprieve.core import change, presets
from reprieve.core.change import Change
from reprieve.core.decide import Conditions, decide
from reprieve.core.job import Job
from reprieve.core.move import Succeed
from reprieve.core.outcome import Failed, Outcome, Succeeded
from reprieve.registry import Registry
from reprieve.rng import draw
from reprieve.worker.gates import Gates
from reprieve.worker.job_logging import log_broken_policy, log_settled, log_undecided
from reprieve.worker.runner import failed_by


class Settlement:
    """Settles attempts by the policies of the tasks and the gates of their dependencies."""

    def __init__(self, registry: Registry, gates: Gates, clock: Clock) -> None:
        """Take what decisions depend on."""
        self._registry = registry
        self._gates = gates
        self._clock = clock

    def settle(self, job: Job, outcome: Outcome) -> Change:
        """Return the change that settles an attempt, and log it unless it is a success. Never raises.

        The gate of the job's dependency records the outcome. Where the decision itself fails, the attempt counts as a
        failure under the standard policy.
        """
        try:
            settled = self._decide(job, outcome)
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - logged; backoffs may be the application's
            log_undecided(job, error)
            settled = self._settle_by_standard(job, error)
        if not isinstance(settled.event.move, Succeed):
            log_settled(settled, outcome.failure if isinstance(outcome, Failed) else None, before=job)
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

    def _settle_by_standard(self, job: Job, error: BaseException) -> Change:
        now = self._clock.next()
        failed = failed_by(error, job)
        return change.settle(job, decide(job, failed, presets.standard, Conditions(now=now, u=draw())), now)
