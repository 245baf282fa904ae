"""Attempts that have ended: the changes that the next claim settles, and the outcomes that the store has refused."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from reprieve.core.change import Change
from reprieve.core.job import Job
from reprieve.core.outcome import Outcome
from reprieve.stores.protocol import ChangeResult

MAX_REFUSED = 1_000
"""Refused outcomes that a worker remembers: few are refused, and a restored store leases their jobs again soon."""

_Ended: TypeAlias = tuple[int, Outcome]
"""The version of the job that was leased, and how the attempt ended."""


class EndedAttempts:
    """The attempts that are not settled, each with its outcome.

    A store that was restored to an earlier state refuses outcomes and leases their jobs again, in the same claim or in
    a later one, under no higher version. Such a job has run: its outcome settles the new lease.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._changes: list[Change] = []
        self._outcomes: dict[str, _Ended] = {}
        """The outcomes behind these changes, by job."""
        self._sent: dict[str, _Ended] = {}
        """Those behind the changes of the claim under way."""
        self._refused: dict[str, _Ended] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to settle."""
        return bool(self._changes)

    def add(self, job: Job, outcome: Outcome, settled: Change) -> None:
        """Add the change that settles an attempt of this job."""
        self._changes.append(settled)
        self._outcomes[job.id] = job.version, outcome

    def ids(self) -> Iterable[str]:
        """Return the jobs of the attempts that no claim settles yet."""
        return self._outcomes.keys()

    def take(self) -> list[Change]:
        """Return the changes, for a claim to settle them."""
        changes, self._changes = self._changes, []
        self._sent, self._outcomes = self._outcomes, {}
        return changes

    def add_results(self, changes: Sequence[Change], results: Sequence[ChangeResult]) -> None:
        """Remember which of the changes that were taken last the store has refused."""
        if "refused" not in results:
            return
        for change, result in zip(changes, results, strict=True):
            if result == "refused":
                self._refused[change.job.id] = self._sent[change.job.id]
        for job_id in list(self._refused)[:-MAX_REFUSED]:
            del self._refused[job_id]

    def outcome_of(self, job: Job) -> Outcome | None:
        """Return how this lease of a job has ended already, and forget it; None if it has not.

        The attempt was made under an earlier lease of this version, before the store was restored.
        """
        ended = self._outcomes.get(job.id)
        if ended is not None and job.version <= ended[0]:
            self._changes = [change for change in self._changes if change.job.id != job.id]
            return self._outcomes.pop(job.id)[1]
        ended = self._refused.pop(job.id, None) if self._refused else None
        return None if ended is None or job.version > ended[0] else ended[1]
