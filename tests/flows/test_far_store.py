"""A server that is far away: a claim takes long, so each brings the jobs that are run until the next one returns."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from reprieve.worker.prefetch import (
    MAX_CLAIM_SECONDS,
    MAX_PREFETCHED_JOBS,
    MAX_PREFETCHED_JOBS_FAR,
    PREFETCH_SECONDS,
    ClaimTime,
    DurationEstimate,
)
from tests.flows.fleet import ONCE, Stage, calls, play
from tests.flows.ground import Ground, Keys, Schema
from tests.flows.workload import nap
from tests.servers import proxy, redis

JOBS, SLOTS, NAP_SECONDS = 600, 10, 0.05
DELAY_SECONDS = 0.1
"""Each way."""


def claims_of(seconds: float, times: int = 50) -> ClaimTime:
    claims = ClaimTime()
    for _ in range(times):
        claims.add(seconds)
    return claims


def jobs_of(seconds: float) -> DurationEstimate:
    durations = DurationEstimate()
    durations.add(seconds)
    return durations


def test_jobs_are_fetched_for_the_time_of_a_claim_too() -> None:
    near, far = jobs_of(0.05).jobs_ahead(10, ClaimTime()), jobs_of(0.05).jobs_ahead(10, claims_of(0.6))
    assert near == 10 * PREFETCH_SECONDS / 0.05
    assert far == pytest.approx(10 * (PREFETCH_SECONDS + 2 * 0.6) / 0.05, abs=1)


def test_more_jobs_may_be_fetched_where_a_claim_takes_long() -> None:
    assert jobs_of(0.001).jobs_ahead(100, ClaimTime()) == MAX_PREFETCHED_JOBS
    assert jobs_of(0.001).jobs_ahead(100, claims_of(0.2)) == pytest.approx(2 * MAX_PREFETCHED_JOBS, abs=1)
    assert jobs_of(0.001).jobs_ahead(100, claims_of(5.0)) == MAX_PREFETCHED_JOBS_FAR


def test_claim_during_an_outage_counts_for_little() -> None:
    claims = claims_of(0.0)
    claims.add(600.0)
    assert claims.seconds <= MAX_CLAIM_SECONDS / 2
    for _ in range(20):
        claims.add(0.002)
    assert claims.seconds < 0.01


def test_nothing_is_fetched_ahead_before_an_attempt_has_ended() -> None:
    assert DurationEstimate().jobs_ahead(10, claims_of(0.6)) == 0


class Far(Schema):
    """A schema that is reached over a long way."""

    def __init__(self, server: str, way: proxy.Proxy) -> None:
        super().__init__(server)
        self.url = f"{way.url}?schema={self.name}"


@contextmanager
def far_ground(server: str, way: proxy.Proxy, own: redis.Server | None) -> Generator[Ground]:
    if own is not None:
        yield Keys(way.url, [own])
        return
    schema = Far(server, way)
    try:
        yield schema
    finally:
        schema.drop()


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_slots_are_busy_although_every_round_trip_takes_200_ms(
    tmp_path: Path, postgres_url: str, kind: Literal["postgres", "redis"]
) -> None:
    async def scene(stage: Stage) -> None:
        ids = await stage.enqueue(*calls(nap, JOBS, NAP_SECONDS))
        way.delay = DELAY_SECONDS
        stage.hire(slots=SLOTS)
        await stage.until(lambda: len(stage.began()) == JOBS, "all jobs begin", 60)
        way.delay = 0
        await stage.succeeded(*ids, within=60)
        began = stage.began()
        took = max(line.at for line in began) - min(line.at for line in began)
        # Three seconds of work in ten slots; a claim of 30 jobs every 0.6 s would take twelve.
        assert took < 8

    with redis.own() as own:
        server = own.url if kind == "redis" else postgres_url
        async with proxy.running(server) as way:
            await play(scene, tmp_path, ONCE, lambda _: far_ground(server, way, own if kind == "redis" else None))
