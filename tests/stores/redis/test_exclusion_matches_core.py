"""The exclusion in Lua is that of the core: the same parts for the same claims, and the same time of the next look."""

from pathlib import Path
from random import Random

import msgspec
import redis

from reprieve.core.fairness.exclusion import Exclusion, turn_of
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.stores.redis.scripts import assemble, read_source

NOW = 1_760_000_000_000
CASES = 2_000
DRIVER = read_source("exclusion_driver", Path(__file__).with_name("exclusion_driver.lua").read_text("utf-8"))


class Case(msgspec.Struct):
    """A claim that has skipped lanes or not, and has passed over many tenants or not."""

    number: int
    count: int
    jumps: bool
    has_skipped: bool
    has_picks: bool
    now: int = NOW


def draw(random: Random) -> Case:
    return Case(
        random.randrange(1, 100_000),
        random.choice((0, 1, 127, 128, 129, 1_000, 50_000)),
        *(random.random() < 0.5 for _ in range(3)),
    )


def core_result(case: Case) -> list[object]:
    exclusion = Exclusion((), case.number)
    if case.has_skipped:
        exclusion.skip(is_whole_tenant=False)
    jumps = [exclusion.jump(case.count) for _ in range(2)] if case.jumps else [None, None]
    at = exclusion.next_at(NOW, has_picks=case.has_picks)
    return [False if value is None else value for value in (*jumps, at)]


def test_lua_looks_where_and_when_the_core_looks(redis_url: str) -> None:
    cases = [draw(Random(seed)) for seed in range(CASES)]
    settings = msgspec.structs.asdict(DEFAULTS)
    tables = [msgspec.structs.asdict(case) | turn_of(case.number)._asdict() | {"settings": settings} for case in cases]
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        packed = client.eval(assemble(DRIVER).text, 1, "{tag}", msgspec.msgpack.encode(tables))
    results = msgspec.msgpack.decode(packed)
    assert results == [core_result(case) for case in cases]
