"""The choice in Lua is that of the core: the same situation, the same picks, and the same counts afterwards."""

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import redis

from reprieve.core.fairness.choice import Choice
from reprieve.core.limits import Limits
from reprieve.core.rate import BUCKETS, Rate
from reprieve.stores.redis.scripts import assemble, read_source
from tests.core.situations import LimitsFacts, Reading, Situation, TenantFacts, draw

BATCHES, SITUATIONS = 16, 250
"""4,000 situations."""

DRIVER = read_source("fairness_driver", Path(__file__).with_name("fairness_driver.lua").read_text("utf-8"))


def limits_table(facts: LimitsFacts) -> dict[str, Any]:
    rate = facts.rate
    return {
        "running": facts.running,
        "permits": False if facts.permits is None else facts.permits,
        "max_running": facts.max_running or False,
        "count": rate.count if rate else False,
        "window": rate.window if rate else False,
        "bucket": rate.bucket if rate else False,
        "meter": [number for entry in facts.meter for number in entry] if rate else False,
    }


def tenant_table(tenant: TenantFacts) -> dict[str, Any]:
    lanes = [
        {
            "name": str(lane.number),
            "priority": lane.priority,
            "served": lane.served,
            "ready": lane.ready,
            "limiters": [place + 1 for place in lane.limiters],
        }
        for lane in tenant.lanes
    ]
    return limits_table(tenant.limits) | {
        "name": tenant.name,
        "weight": tenant.weight,
        "finish": tenant.finish,
        "served": tenant.served,
        "lanes": lanes,
        "has_more": tenant.has_more,
        "has_excluded": tenant.has_excluded,
        "blocked": 0,
    }


def situation_table(situation: Situation, random: Random) -> dict[str, Any]:
    """Return a situation as the driver reads it: some tenants were moved, so they are known apart from the order."""
    clock, last, in_a_row, last_served_at, other_served_at = situation.state
    ordered = [tenant_table(tenant) for tenant in situation.in_order]
    moved = [tenant for tenant in ordered if random.random() < 0.1]
    return {
        "now": situation.now,
        "capacity": situation.capacity,
        "limit": situation.limit,
        "at_once": random.choice((2, 3, 24)),
        "settings": msgspec.structs.asdict(situation.settings),
        "weights": situation.weights._asdict(),
        "queue": {
            "clock": clock,
            "last_tenant": situation.tenants[last - 1].name if last else "",
            "in_a_row": in_a_row,
            "last_served_at": last_served_at,
            "other_served_at": other_served_at,
        },
        "limits": limits_table(situation.queue),
        "limiters": [limits_table(facts) | {"number": 100 + place} for place, facts in enumerate(situation.limiters)],
        "tenants": [tenant for tenant in ordered if tenant not in moved],
        "moved": moved,
    }


def meter_of(rate: Rate | None, meter: Any, now: int) -> list[int]:  # noqa: ANN401 - as either of the two keeps it
    """Return the buckets that count: when the others are forgotten is not part of the choice."""
    if rate is None:
        return []
    flat = [number for entry in meter for number in entry] if isinstance(meter, tuple) else meter
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return [number for pair in pairs if pair[0] >= now // rate.bucket - BUCKETS for number in pair]


def counted(limits: Limits, now: int) -> tuple[int, list[int]]:
    return limits.running, meter_of(limits.rate, limits.meter, now)


def core_result(situation: Situation) -> dict[str, Any]:
    reading = Reading(situation, 3)
    choice = reading.choose()
    now = situation.now
    return {
        "picks": [str(pick.id) for pick in choice.picks],
        "blocked_lanes": [(str(lane.id), limiter.id) for lane, limiter in choice.blocked_lanes.values()],
        "state": _named(choice, situation),
        "tenants": {
            tenant.name: (*counted(tenant.limits, now), tenant.finish, tenant.served, int(tenant.blocked))
            for tenant in choice.tenants.values()
            if tenant.taken or tenant.blocked
        },
        "limiters": [counted(limits, now) for limits in (choice.queue, *_limited(reading.limiters))],
        "is_cut": choice.is_cut,
        "ceiling_until": choice.ceiling_until or False,
    }


def _named(choice: Choice, situation: Situation) -> dict[str, Any]:
    state = msgspec.structs.asdict(choice.state)
    last = state["last_tenant"]
    return state | {"last_tenant": situation.tenants[last - 1].name if last else ""}


def _limited(limiters: list[Limits]) -> list[Limits]:
    """Leave out limiters that limit nothing: a claim counts for them after the choice."""
    return [limits for limits in limiters if not limits.is_unlimited]


def lua_result(result: dict[str, Any], situation: Situation) -> dict[str, Any]:
    now = situation.now
    facts = {tenant.name: tenant for tenant in situation.tenants}
    tenants = {}
    for tenant in result["tenants"]:
        before = facts[tenant["name"]]
        if tenant["served"] > before.served or tenant["blocked"]:
            meter = meter_of(before.limits.rate, tenant["meter"], now)
            numbers = (tenant["running"], meter, tenant["finish"], tenant["served"], tenant["blocked"])
            tenants[tenant["name"]] = numbers
    limiters = [(situation.queue, result["limits"])]
    limiters += [
        (before, after)
        for before, after in zip(situation.limiters, result["limiters"], strict=True)
        if not before.make(0).is_unlimited
    ]
    return {
        "picks": result["picks"],
        "blocked_lanes": [tuple(blocked) for blocked in result["blocked_lanes"]],
        "state": result["queue"],
        "tenants": tenants,
        "limiters": [(after["running"], meter_of(before.rate, after["meter"], now)) for before, after in limiters],
        "is_cut": result["is_cut"],
        "ceiling_until": result["ceiling_until"],
    }


def require_same(seeds: range, script: bytes, redis_url: str) -> None:
    """Give situations to both, and compare."""
    situations = [draw(Random(seed)) for seed in seeds]
    tables = [situation_table(situation, Random(seed)) for seed, situation in zip(seeds, situations, strict=True)]
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        packed = client.eval(script, 1, "{tag}", msgspec.msgpack.encode(tables))
    results = msgspec.msgpack.decode(packed)
    for seed, situation, result in zip(seeds, situations, results, strict=True):
        assert lua_result(result, situation) == core_result(situation), f"situation {seed}"


@pytest.mark.parametrize("batch", range(BATCHES))
def test_lua_picks_what_the_core_picks(batch: int, redis_url: str) -> None:
    seeds = range(batch * SITUATIONS, (batch + 1) * SITUATIONS)
    require_same(seeds, assemble(DRIVER).text, redis_url)


def test_lua_picks_the_same_where_the_locale_does_not_sort_by_bytes(redis_url: str) -> None:
    text = assemble(DRIVER).text
    by_bytes = b"local SORTS_BY_BYTES ="
    assert by_bytes in text
    require_same(range(SITUATIONS), text.replace(by_bytes, by_bytes + b" false and"), redis_url)


def test_situations_meet_every_rule() -> None:
    met: set[str] = set()
    for seed in range(BATCHES * SITUATIONS):
        result = core_result(draw(Random(seed)))
        met |= {name for name in ("picks", "blocked_lanes", "is_cut", "ceiling_until") if result[name]}
        met |= {f"blocked {blocked}" for *_, blocked in result["tenants"].values()}
    assert met == {"picks", "blocked_lanes", "is_cut", "ceiling_until", *(f"blocked {reason}" for reason in range(4))}
