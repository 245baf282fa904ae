"""The index of ended jobs: by what dead and cancelled jobs are found, in the order in which they ended."""

from typing import NamedTuple

from reprieve.core.job import Job
from reprieve.stores.causes import FailureNames
from reprieve.stores.failure_names import code_of, fingerprint_of


class IndexedFields(NamedTuple):
    """What the index of ended jobs keeps of a job besides its queue, state, end, id and lane."""

    tenant: str
    task: str
    dependency: str
    death: str
    """Empty for a cancelled job."""
    code: str
    fingerprint: str

    def failure_names(self) -> FailureNames:
        """Return what a dead job is counted by."""
        return FailureNames(self.tenant, self.task, self.death, self.code, self.fingerprint)


def indexed_fields(job: Job) -> IndexedFields:
    """Return what the index of ended jobs keeps of a job that has ended."""
    return IndexedFields(job.tenant, job.task, job.dependency, job.death or "", code_of(job), fingerprint_of(job))
