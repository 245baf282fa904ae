"""One tenant leaves a part of a worker's slots to the others, and the store learns how many jobs are fetched ahead."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.job import Job
from reprieve.worker.in_flight import InFlightTable
from reprieve.worker.prefetch import (
    ClaimTime,
    EndRate,
    PrefetchBuffer,
    RecentTenants,
    is_news,
    max_running_per_tenant,
)


def job(tenant: str, number: int = 0) -> Job:
    return Job(id=f"{tenant}-{number}", task="send", queue="default", created_at=0, due_at=0, tenant=tenant)


def started(tenants: str, slots: int, running: str = "", *, has_other: bool = False) -> str:
    """Fetch a job for each letter, start what there are slots for; return whose jobs they are, in their order."""
    buffer, busy, order = PrefetchBuffer(), Counter(running), ""
    buffer.add([job(tenant, number) for number, tenant in enumerate(tenants)], 0.0)
    while buffer and busy.total() < slots:
        found = buffer.next(busy, slots, lambda _: has_other)
        if found is None:
            break
        next_one = buffer.take(found)
        busy[next_one.tenant] += 1
        order += next_one.tenant
    return order


@pytest.mark.parametrize(("slots", "most"), [(1, 1), (2, 1), (9, 8), (10, 9), (20, 18), (50, 45)])
def test_one_tenant_may_use_nine_tenths_of_a_workers_slots(slots: int, most: int) -> None:
    assert max_running_per_tenant(slots) == most


def test_jobs_start_in_the_order_of_their_claims_while_no_tenant_has_too_many_slots() -> None:
    assert started("abcaab", 10) == "abcaab"


def test_a_tenant_with_nine_tenths_of_the_slots_lets_another_pass() -> None:
    assert started("aaaab", 10, running="a" * 9) == "b"
    assert started("aaaabb", 10, running="a" * 8) == "ab"


def test_a_tenant_whose_jobs_are_all_that_waits_gets_every_slot() -> None:
    assert started("aaaa", 10, running="a" * 8) == "aa"
    assert started("a" * 12, 10) == "a" * 10


@pytest.mark.parametrize(("slots", "expected"), [(1, 1), (2, 2), (9, 9), (10, 9), (20, 18), (50, 45)])
def test_a_tenant_leaves_whole_slots_to_tenants_that_were_active_a_moment_ago(slots: int, expected: int) -> None:
    assert len(started("a" * 60, slots, has_other=True)) == expected
    assert started("a" * 60 + "b", 10, running="a" * 9, has_other=True) == "b"


def test_a_tenant_counts_as_active_for_a_minute_after_its_last_start() -> None:
    recent = RecentTenants()
    assert not recent.has_other("a", 0.0)
    recent.note("a", 0.0)
    assert not recent.has_other("a", 1.0)
    assert recent.has_other("b", 59.9)
    assert not recent.has_other("b", 60.1)
    recent.note("b", 10.0)
    recent.note("a", 20.0)
    recent.note("a", 65.0)
    assert recent.has_other("a", 69.9)
    assert not recent.has_other("a", 70.1)


def test_as_many_jobs_are_fetched_ahead_as_end_meanwhile() -> None:
    rate = EndRate()
    assert rate.ended_in(0.1, 100.0) == 0
    for _ in range(20):
        rate.add()
    # The first batch of fast jobs took 3 ms: the next may be far larger.
    assert rate.ended_in(0.1, 100.003) == pytest.approx(667, rel=0.01)
    for _ in range(30):
        rate.add()
    assert rate.ended_in(0.1, 100.5) == pytest.approx(10)
    assert rate.ended_in(0.1, 101.0) == pytest.approx(0)


def test_a_long_silence_does_not_count_when_jobs_are_fast_again() -> None:
    rate = EndRate()
    rate.ended_in(0.1, 0.0)
    rate.add()
    assert rate.ended_in(0.1, 100.0) < 0.01
    for _ in range(20):
        rate.add()
    assert rate.ended_in(0.1, 100.01) == pytest.approx(200)


def test_a_worker_with_one_slot_starts_jobs_in_their_order() -> None:
    assert started("ab", 1) == "a"


@given(st.text("abc", max_size=40), st.integers(1, 25))
def test_no_slot_stays_free_while_a_job_waits(tenants: str, slots: int) -> None:
    order = started(tenants, slots)
    assert len(order) == min(len(tenants), slots)
    assert not Counter(order) - Counter(tenants)


@given(st.text("ab", min_size=1, max_size=60), st.integers(2, 25))
def test_a_tenant_has_more_than_nine_tenths_only_when_no_other_waits(tenants: str, slots: int) -> None:
    order = started(tenants, slots)
    counts, left = Counter(order), Counter(tenants) - Counter(order)
    for tenant, count in counts.items():
        assert count <= max_running_per_tenant(slots) or not left.keys() - {tenant}


def test_jobs_that_are_removed_do_not_count_for_their_tenant_any_more() -> None:
    buffer = PrefetchBuffer()
    buffer.add([job("a", 1), job("b", 2), job("a", 3)], 0.0)
    assert [one.id for one in buffer.remove(lambda one: one.tenant == "b")] == ["b-2"]
    found = buffer.next({"a": 9}, 10, lambda _: False)
    assert found is not None
    assert found.id == "a-1"
    assert buffer.stale(100.0, ClaimTime()) == {"a-1", "a-3"}
    assert buffer.ids() == {"a-1", "a-3"}


@pytest.mark.parametrize(
    ("prefetch", "announced", "expected"),
    [(0, 0, False), (20, 0, False), (21, 0, True), (250, 0, True), (130, 250, False), (100, 250, True), (0, 250, True)],
)
def test_the_store_is_told_early_when_far_more_or_fewer_jobs_are_fetched_ahead(
    prefetch: int, announced: int, *, expected: bool
) -> None:
    assert is_news(prefetch, announced, slots=20) is expected


def test_the_in_flight_table_says_how_many_jobs_are_fetched_ahead() -> None:
    table = InFlightTable(2)
    assert table.prefetch() == 0
    table.set_prefetch(250)
    assert table.prefetch() == 250
    assert table.pulse() == 0
    assert not table.is_store_away()
    assert table.ended() == frozenset()
    assert table.attempts() == []
