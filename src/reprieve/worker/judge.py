"""The judge: turns the outcome of an attempt into the change that settles it."""

from functools import partial

from msgspec.structs import replace

from reprieve.clock import Clock
from reprieve.core import change, presets
from reprieve.core.change import Change
from reprieve.core.classify import judge
from reprieve.core.decide import Conditions, decide
from reprieve.core.job import Job
from reprieve.core.outcome import Failed, Outcome, Succeeded
from reprieve.registry import Registry
from reprieve.rng import draw
from reprieve.worker.gates import Gates
from reprieve.worker.journal import note_broken
from reprieve.worker.tracebacks import failure_of


class Judge:
    """Decides, with the policy in force and the gates as they stand."""

    def __init__(self, registry: Registry, gates: Gates, clock: Clock) -> None:
        """Take what decisions depend on."""
        self._registry = registry
        self._gates = gates
        self._clock = clock

    def settle(self, job: Job, outcome: Outcome) -> Change:
        """Decide what follows an attempt."""
        if job.dependency:
            self._tell(job, outcome)
        now = self._clock.next()
        complain = partial(note_broken, job)
        conditions = Conditions(now=now, u=draw(), gate=self._gates.of(job.dependency), on_error=complain)
        decision = decide(job, outcome, self._registry.policy_of(job), conditions)
        settled = change.settle(job, decision, now)
        if not isinstance(outcome, Succeeded) or outcome.result is None:
            return settled
        declaration = self._registry.get(job.task)
        return replace(settled, result=outcome.result, result_ttl=declaration.result_ttl)

    def give_up(self, job: Job, error: Exception) -> Change:
        """Settle an attempt that could not be judged, as a failure under the standard policy."""
        now = self._clock.next()
        failure = failure_of(error, dependency=job.dependency)
        failed = Failed(failure=failure, verdict=judge(failure, ()))
        return change.settle(job, decide(job, failed, presets.standard, Conditions(now=now, u=draw())), now)

    def _tell(self, job: Job, outcome: Outcome) -> None:
        """Let the gate know how a call of its dependency ended."""
        if isinstance(outcome, Succeeded):
            self._gates.hear(job, None)
        elif isinstance(outcome, Failed):
            self._gates.hear(job, outcome.verdict)
