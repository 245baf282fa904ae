"""What a claim skips of excluded tasks: how much, which part of the rest, and when it looks again."""

from reprieve.core.fairness.candidates import BlockReason, Capacity, FairnessState, Lane, Tenant, Weights
from reprieve.core.fairness.choice import Choice
from reprieve.core.fairness.exclusion import AT_END, Exclusion, turn_of
from reprieve.core.fairness.settings import FairnessSettings
from reprieve.core.fairness.updates import tenant_updates
from reprieve.core.limits import Limits

NOW = 1_760_000_000_000
SETTINGS = FairnessSettings(max_excluded_tenants=4, max_excluded_lanes=200, max_lanes_read=10)


def limits(number: int, running: int = 0) -> Limits:
    return Limits(number, None, None, None, (), running)


def tenant(number: int, *lanes: Lane, running: int = 0, has_excluded: bool = False) -> Tenant:
    return Tenant(limits(number, running), f"t-{number}", 1.0, 0, 0, list(lanes), has_excluded=has_excluded)


def choose(*tenants: Tenant, slots: int = 10) -> Choice:
    choice = Choice(FairnessState(0, 0, 0, 0, 0), limits(99), capacity=Capacity(slots, 0), now=NOW)
    choice.add(tenants, None)
    while need := choice.run(slots):
        assert need == "weights"
        choice.weights = Weights(0, 0)
    choice.finish()
    return choice


def test_claim_that_skipped_nothing_has_nothing_to_look_at_again() -> None:
    assert Exclusion({1}, 7).next_at(NOW, has_picks=False) is None


def test_claim_that_saw_everything_looks_again_after_a_second() -> None:
    exclusion = Exclusion({1}, 7)
    exclusion.skip(is_whole_tenant=True)
    assert exclusion.next_at(NOW, has_picks=False) == NOW + 1_000
    assert exclusion.next_at(NOW, has_picks=True) == NOW + 1_000


def test_claim_that_saw_one_of_several_parts_looks_again_sooner() -> None:
    exclusion = Exclusion({1}, 7, SETTINGS)
    far = []
    for _ in range(4):
        far.append(exclusion.is_far)
        exclusion.skip(is_whole_tenant=True)
    exclusion.skip(is_whole_tenant=False)
    far.append(exclusion.is_far)
    assert exclusion.jump(20) in range(0, 20, 4)
    assert [*far, exclusion.is_far] == [False] * 4 + [True, False]
    assert exclusion.next_at(NOW, has_picks=False) == NOW + 100
    assert exclusion.next_at(NOW, has_picks=True) == NOW, "where there is something to do, it goes on at once"


def test_claim_never_looks_again_in_a_busy_loop_however_many_parts_there_are() -> None:
    exclusion = Exclusion({1}, 7, SETTINGS)
    exclusion.skip(is_whole_tenant=True)
    exclusion.jump(100_000)
    assert exclusion.next_at(NOW, has_picks=False) == NOW + 10


def test_claim_jumps_once() -> None:
    exclusion = Exclusion({1}, 7, SETTINGS)
    assert exclusion.jump(0) == 0
    assert exclusion.jump(100) is None


def test_every_part_of_the_tenants_and_lanes_is_seen_whichever_claims_ask() -> None:
    for stride in (1, 2, 3, 7, 64):
        seen = set()
        for number in range(1, 40 * 50 * stride, stride):
            exclusion = Exclusion({1}, number, SETTINGS)
            _, (skip,) = exclusion.lane_part([1_000])
            seen.add((exclusion.jump(40), skip))
        # 10 parts of 4 tenants, and 5 parts of 200 lanes: each part of the lanes is seen with each of the tenants.
        assert seen == {(tenants, lanes) for tenants in range(0, 40, 4) for lanes in range(0, 1_000, 200)}, stride


def test_half_of_the_claims_look_at_the_end_where_those_stand_that_are_served() -> None:
    tenants = [Exclusion({1}, number, SETTINGS).jump(41) for number in range(1_000)]
    assert 450 < tenants.count(37) < 550
    lanes = [Exclusion({1}, number, SETTINGS).lane_part([401])[1] for number in range(1_000)]
    assert 450 < lanes.count([201]) < 550
    assert Exclusion({1}, 0, SETTINGS).jump(3) == 0


def test_lanes_looked_through_are_bounded_for_all_tenants_together() -> None:
    assert Exclusion({1}, 0, SETTINGS).lane_part([50, 60])[0] == 100
    assert Exclusion({1}, 0, SETTINGS).lane_part([50] * 1_000)[0] == 10
    assert turn_of(0) == (AT_END, AT_END)


def test_tenant_with_nothing_but_excluded_lanes_stays_a_candidate() -> None:
    passed = tenant(1, has_excluded=True)
    assert passed.is_candidate
    assert [update.id for update in tenant_updates(choose(passed, tenant(2)))] == [2], "only the empty one is written"


def test_tenant_whose_other_jobs_are_all_taken_stays_a_candidate() -> None:
    lane = Lane(5, 5, 0, 1, [])
    choice = choose(tenant(1, lane, has_excluded=True))
    (update,) = tenant_updates(choice)
    assert (len(choice.picks), update.is_candidate, update.blocked) == (1, True, BlockReason.NONE)
    assert not lane.is_alone, "its turn counts among the lanes that are excluded"


def test_tenant_that_no_session_serves_keeps_no_slots_free() -> None:
    lane = Lane(5, 5, 0, 20, [])
    assert len(choose(tenant(1, lane), tenant(2, has_excluded=True)).picks) == 10


def test_tenant_that_another_session_serves_keeps_its_slots() -> None:
    lane = Lane(5, 5, 0, 20, [])
    assert len(choose(tenant(1, lane), tenant(2, has_excluded=True, running=1)).picks) == 9
