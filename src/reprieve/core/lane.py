"""Lanes: the waiting jobs of one queue, tenant, task, dependency and group. Part of the specification of the claim.

A lane keeps a shelf per priority. Pausing a task or holding a dependency puts whole lanes aside, so neither ever
searches for jobs.
"""

from collections.abc import Sequence

from reprieve.core.job import Job
from reprieve.core.record import Record

OLDEST_EVERY = 16
"""Every sixteenth pick of a tenant takes from whatever was served longest ago, so that nothing starves."""


class Lane(Record):
    """What the jobs of a lane have in common."""

    queue: str
    tenant: str
    task: str
    dependency: str
    group: str = ""


class Shelf(Record):
    """The jobs of one priority in a lane. `served` is the tenant's pick that last took from this shelf."""

    lane: Lane
    priority: int
    served: int = 0


def lane_of(job: Job) -> Lane:
    """Return the lane that a job waits in."""
    return Lane(queue=job.queue, tenant=job.tenant, task=job.task, dependency=job.dependency, group=job.group)


def choose_shelf(shelves: Sequence[Shelf], pick: int) -> Shelf:
    """Choose where a tenant's pick-th job comes from: best priority first, equal ones in turn.

    `shelves` are the tenant's shelves that are not empty and not put aside; picks count from 1.
    """
    if pick % OLDEST_EVERY == 0:
        return min(shelves, key=lambda shelf: (shelf.served, -shelf.priority))
    return min(shelves, key=lambda shelf: (shelf.priority, shelf.served))
