"""The audit of causes: a store must count what a recount of the model's dead jobs, and of its failures, says."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from reprieve.stores.causes import FailureNames, Listing, hour_of, listing_of, names_of, oldest_hour
from reprieve.stores.protocol import HOUR_MS, CauseGroup, CauseRequest, Store
from reprieve.testing.conformance.expect import expect, expect_equal
from reprieve.testing.conformance.machine.model import Model, SeenFailure

_GROUPINGS: Final = ("fingerprint", "code", "tenant", "task", "death")
_DEAD: Final = tuple(CauseRequest(by=by, limit=3) for by in _GROUPINGS)
_LIVING: Final = tuple(CauseRequest(by=by, of="living", limit=3) for by in _GROUPINGS[:-1])


class _Recount(NamedTuple):
    """A group, recounted."""

    number: int
    first_at: int
    last_at: int
    samples: set[str]
    """The jobs that may be the last one."""


class CauseAudit:
    """Compares the causes of a store with the model, some lists of groups at a time."""

    def __init__(self, store: Store, model: Model) -> None:
        """Begin with the first list."""
        self._store = store
        self._model = model
        self._turn = 0

    async def look(self) -> None:
        """Compare some of the lists."""
        self._turn += 1
        tenants = sorted({job.tenant for job in self._model.jobs.values()})
        pairs: Sequence[CauseRequest] = [CauseRequest(tenant=tenant, limit=2) for tenant in tenants]
        prints = sorted({one.names.fingerprint for one in self._model.deaths if one.names.fingerprint})
        pairs = [*pairs, *(CauseRequest(by="tenant", fingerprint=name, limit=2) for name in prints)]
        dead = [*_DEAD, *pairs]
        living = [*_LIVING, *(replace(request, of="living") for request in pairs)]
        for request in (dead[self._turn % len(dead)], living[self._turn % len(living)]):
            await self._compare(request)
            await self._compare(replace(request, order="last"))

    async def _compare(self, request: CauseRequest) -> None:
        model, listing = self._model, listing_of(request)
        if listing.is_living:
            since = oldest_hour(model.now, is_living=True)
            wanted = _recount(listing, (one for one in model.survived if hour_of(one.at) >= since))
        else:
            dead = (job for job in model.jobs.values() if job.state == "dead")
            wanted = _recount(listing, (SeenFailure(names_of(job), job.finished_at or 0, job.id) for job in dead))
        found = await self._groups(request)
        counts = {group.name: group.count for group in found}
        expect_equal(counts, {name: group.number for name, group in wanted.items()}, f"the causes of {request!r}")
        for group in found:
            again = wanted[group.name]
            expect_equal(group.last_at, again.last_at, f"when the last of {group.name!r} was seen in {request!r}")
            expect(group.sample_id in again.samples, f"{group.sample_id} is not the last of {again.samples}")
            if not listing.is_living:
                expect_equal(group.first_at, again.first_at, f"the first of {group.name!r} in {request!r}")
        self._compare_hours(listing, found)

    def _compare_hours(self, listing: Listing, found: Iterable[CauseGroup]) -> None:
        """Compare the counts by the hour of the groups that were found."""
        model = self._model
        seen = model.survived if listing.is_living else model.deaths
        since = oldest_hour(model.now, is_living=True)
        for group in found:
            hours = Counter(
                hour_of(one.at) * HOUR_MS
                for one in seen
                if hour_of(one.at) >= since and group.name in _names_in(listing, one.names)
            )
            expect_equal(dict(group.hours), dict(hours), f"the hours of {group.name!r} in {listing}")

    async def _groups(self, request: CauseRequest) -> list[CauseGroup]:
        """Return the groups of all pages, which must be in order."""
        found: list[CauseGroup] = []
        while True:
            page = await self._store.causes(request, self._model.now)
            found += page.groups
            if not page.cursor:
                break
            request = replace(request, cursor=page.cursor)
        if request.order == "last":
            places = [(group.last_at, group.name) for group in found]
            expect_equal(places, sorted(places, reverse=True), f"the order of {request!r}")
        elif request.of == "dead":
            places = [(group.count, group.name) for group in found]
            expect_equal(places, sorted(places, reverse=True), f"the order of {request!r}")
        return found


def _names_in(listing: Listing, names: FailureNames) -> list[str]:
    """Return the names of a failure in a list of groups: one, or none."""
    return [group.name for group in names.groups() if (group.kind, group.scope) == (listing.kind, listing.scope)]


def _recount(listing: Listing, seen: Iterable[SeenFailure]) -> dict[str, _Recount]:
    """Count failures by their names in a list of groups."""
    by_name: dict[str, list[SeenFailure]] = defaultdict(list)
    for one in seen:
        for name in _names_in(listing, one.names):
            by_name[name].append(one)
    recounted: dict[str, _Recount] = {}
    for name, group in by_name.items():
        times = [one.at for one in group]
        samples = {one.job_id for one in group if one.at == max(times)}
        recounted[name] = _Recount(len(group), min(times), max(times), samples)
    return recounted
