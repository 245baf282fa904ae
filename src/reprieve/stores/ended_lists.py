"""Which lists of ended jobs, and of tried jobs that are due later, a search reads.

They are the narrowest that have all jobs which a filter can match.
"""

from collections.abc import Iterator
from itertools import product
from typing import Final, Literal, NamedTuple, TypeAlias

from reprieve.stores.places import possible_statuses
from reprieve.stores.protocol import MAX_FILTER_NAMES, Filter

ListField: TypeAlias = Literal[
    "tenant_fingerprint", "fingerprint", "code", "tenant", "dependency", "task", "death", "queue", "all"
]
"""What the jobs of a list have in common."""

CANCELLED_FIELDS: Final = frozenset({"tenant", "queue", "all"})
"""The lists that cancelled jobs have as well."""

TRIED_FIELDS: Final = frozenset({"fingerprint", "code", "tenant", "dependency", "task"})
"""The lists of jobs that were tried and are due later."""


class EndedList(NamedTuple):
    """A list of dead or cancelled jobs in the order in which they ended."""

    status: Literal["dead", "cancelled"]
    field: ListField
    names: tuple[str, ...]
    """What its jobs have in that field: two names for a tenant with a fingerprint, none for all jobs."""


def ended_lists(wanted: Filter) -> list[EndedList]:
    """Return the lists to merge."""
    statuses = possible_statuses(wanted)
    lists: list[EndedList] = []
    if "dead" in statuses:
        field, names = next(_choices(wanted))
        lists += [EndedList("dead", field, one) for one in names]
    if "cancelled" in statuses:
        field, names = next(choice for choice in _choices(wanted) if choice[0] in CANCELLED_FIELDS)
        lists += [EndedList("cancelled", field, one) for one in names]
    return lists


def tried_list(wanted: Filter) -> tuple[ListField, list[str]] | None:
    """Return the lists of tried jobs that are due later which have all jobs of a filter: their field, and the names.

    None: no list is narrower than that of a queue.
    """
    for field, names in _choices(wanted):
        if field in TRIED_FIELDS:
            return field, [name for (name,) in names]
    return None


def _choices(wanted: Filter) -> Iterator[tuple[ListField, list[tuple[str, ...]]]]:
    """Return lists that have all jobs of a filter, the narrowest first. Jobs without a code are in no list of codes."""
    has_fingerprints = bool(wanted.fingerprints) and "" not in wanted.fingerprints
    pairs = list(product(wanted.tenants, wanted.fingerprints))
    if has_fingerprints and 0 < len(pairs) <= MAX_FILTER_NAMES:
        yield "tenant_fingerprint", list(pairs)
    if has_fingerprints:
        yield "fingerprint", [(name,) for name in wanted.fingerprints]
    if wanted.codes and "" not in wanted.codes:
        yield "code", [(name,) for name in wanted.codes]
    fields: tuple[tuple[ListField, tuple[str, ...]], ...] = (
        ("tenant", wanted.tenants),
        ("dependency", wanted.dependencies),
        ("task", wanted.tasks),
        ("death", () if wanted.death is None else (wanted.death,)),
        ("queue", wanted.queues),
    )
    for field, names in fields:
        if names:
            yield field, [(name,) for name in names]
    yield "all", [()]
