"""Whose job is next: the choice that SQLite and PostgreSQL run, from what they have read to what they write back."""

import heapq
from collections import Counter, defaultdict
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.fairness.candidates import (
    BlockReason,
    Capacity,
    FairnessState,
    Lane,
    Position,
    Tenant,
    Weights,
    weigh,
)
from reprieve.core.fairness.choice import Choice
from reprieve.core.fairness.settings import FairnessSettings, aged_priority
from reprieve.core.fairness.updates import LaneUpdate, lane_updates, limiter_updates, tenant_updates
from reprieve.core.limits import Limits
from reprieve.core.rate import Rate, spend
from reprieve.errors import ValidationError
from tests.core.situations import NOW, Reading, draw

MINUTE = 60_000


def limits(number: int = 0, running: int = 0, **fields: Any) -> Limits:  # noqa: ANN401 - whatever limits it
    facts = {"permits": None, "max_running": None, "rate": None, "meter": ()} | fields
    return Limits(id=number, running=running, **facts)


def lane(number: int, priority: int = 5, *limiters: Limits, served: int = 0, ready: int = 100) -> Lane:
    return Lane(number, priority, served, ready, list(limiters))


def tenant(name: str, *lanes: Lane, running: int = 0, weight: float = 1.0, finish: int = 0, **fields: Any) -> Tenant:  # noqa: ANN401 - as above
    """Make a tenant whose id is the code of its name, with one lane of the same id unless others are given."""
    number = ord(name[0])
    served, has_more = fields.pop("served", 0), fields.pop("has_more", False)
    own = limits(number, running, **fields)
    return Tenant(own, name, weight, finish, served, list(lanes or (lane(number),)), has_more)


def choice_of(*tenants: Tenant, slots: int = 50, running: int = 0, **fields: Any) -> Choice:  # noqa: ANN401 - as above
    """Make a choice that has read everything; `running` is the weight of tenants that only run."""
    state = fields.pop("state", None) or FairnessState(0, 0, 0, 0, 0)
    queue = fields.pop("queue", None) or limits(1)
    settings = fields.pop("settings", None) or FairnessSettings()
    capacity = Capacity(slots, fields.pop("prefetch", 0))
    choice = Choice(state, queue, capacity=capacity, now=NOW, settings=settings)
    choice.add(tenants, None)
    choice.weights = Weights(sum(weigh(one.weight) for one in tenants if one.lanes), running * 1_000)
    return choice


def picks(choice: Choice, limit: int = 1) -> str:
    """Run a choice whose lanes are named by their tenants; return whose jobs were picked, in their order."""
    assert choice.run(limit) is None
    return "".join(chr(lane.id) for lane in choice.picks)


def state_after(last: str, in_a_row: int, last_served_at: int = NOW, other_served_at: int = 0) -> FairnessState:
    return FairnessState(0, ord(last), in_a_row, last_served_at, other_served_at)


class Fleet:
    """A fleet in virtual time: tenants with endless backlogs of jobs of one length, and so many slots."""

    def __init__(self, slots: int, lengths: dict[str, float], weights: dict[str, float] | None = None) -> None:
        self.slots = slots
        self.lengths = lengths
        self.tenants = {name: tenant(name, weight=(weights or {}).get(name, 1.0)) for name in lengths}
        self.now = 0.0
        self.state = FairnessState(0, 0, 0, 0, 0)
        self.running: list[tuple[float, str]] = []
        self.seconds: dict[str, float] = defaultdict(float)
        self.order: list[str] = []

    def join(self, name: str, length: float) -> None:
        self.lengths[name], self.tenants[name] = length, tenant(name, finish=self.state.clock)

    def run(self, length: float) -> None:
        end = self.now + length
        while self.now < end:
            while len(self.running) < self.slots and self.lease():
                pass
            self.now, name = heapq.heappop(self.running)
            self.tenants[name].limits.running -= 1
            self.seconds[name] += self.lengths[name]

    def lease(self) -> bool:
        for waiting in self.tenants.values():
            waiting.lanes = [lane(ord(waiting.name))]
        picked = picks(choice_of(*self.tenants.values(), slots=self.slots, state=self.state))
        for name in picked:
            heapq.heappush(self.running, (self.now + self.lengths[name], name))
            self.order.append(name)
        return bool(picked)


def jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def test_equal_tenants_take_turns() -> None:
    assert picks(choice_of(tenant("c"), tenant("a"), tenant("b")), 6) == "abcabc"


@pytest.mark.parametrize("lengths", [{"a": 5, "b": 0.5}, {"a": 5, "b": 0.5, "c": 1, "d": 0.1}])
def test_tenants_get_equal_seconds_whatever_their_jobs_last(lengths: dict[str, float]) -> None:
    fleet = Fleet(20, lengths)
    fleet.run(600)
    assert jain(list(fleet.seconds.values())) >= 0.99


def test_weights_divide_the_seconds() -> None:
    weights = {"g": 6.0, "f": 1.0}
    fleet = Fleet(35, {"g": 0.5, "f": 2}, weights)
    fleet.run(600)
    shares = [fleet.seconds[name] / weight for name, weight in weights.items()]
    assert jain(shares) >= 0.99


def test_a_flood_does_not_bury_a_small_tenant() -> None:
    fleet = Fleet(10, {"f": 1})
    fleet.run(50)
    fleet.order.clear()
    fleet.join("s", 1)
    fleet.run(10)
    tenth_of_small = [number for number, name in enumerate(fleet.order) if name == "s"][9]
    assert fleet.order[:tenth_of_small].count("f") <= 33


def test_the_tenant_that_holds_the_fewest_slots_for_its_weight_is_next() -> None:
    assert picks(choice_of(tenant("a", running=4), tenant("b", running=6, weight=2.0))) == "b"


def test_among_equals_virtual_time_decides_and_then_the_name() -> None:
    assert picks(choice_of(tenant("a", finish=5), tenant("b", finish=4))) == "b"
    # Row ids would say otherwise: the ids of both are those of their first letters, and every store has others.
    first, second = tenant("zb"), tenant("za")
    second.limits.id = ord("{")
    second.lanes = [lane(ord("{"))]
    assert picks(choice_of(first, second)) == "{"


def test_a_lease_moves_the_tenant_on_by_its_weight_and_the_clock_to_where_it_was() -> None:
    one = tenant("a", finish=1_500_000, weight=128.0, served=7)
    choice = choice_of(one, state=FairnessState(1_000_000, ord("a"), 2, NOW - 5, NOW - 9))
    assert picks(choice) == "a"
    # 7,812.5 millionths, rounded half up as in every store.
    assert (one.finish, one.served, one.limits.running) == (1_507_813, 8, 1)
    assert choice.state.clock == 1_500_000
    assert (choice.state.last_tenant, choice.state.in_a_row) == (ord("a"), 3)
    assert (choice.state.last_served_at, choice.state.other_served_at) == (NOW, NOW - 9)


def test_the_state_of_a_queue_counts_another_tenant_from_one() -> None:
    choice = choice_of(tenant("b"), state=state_after("a", 2, NOW - 7, NOW - 9))
    assert picks(choice) == "b"
    assert (choice.state.last_tenant, choice.state.in_a_row) == (ord("b"), 1)
    assert (choice.state.last_served_at, choice.state.other_served_at) == (NOW, NOW - 7)


@pytest.mark.parametrize(("in_a_row", "expected"), [(2, "n"), (3, "h")])
def test_at_most_three_in_a_row_while_another_waits_below_its_share(in_a_row: int, expected: str) -> None:
    newcomer, hog = tenant("n"), tenant("h", running=20)
    assert picks(choice_of(newcomer, hog, state=state_after("n", in_a_row))) == expected


def test_three_in_a_row_are_also_counted_within_a_claim() -> None:
    assert picks(choice_of(tenant("n"), tenant("h", running=20)), 8) == "nnnhnnnh"


def test_a_tenant_at_its_share_does_not_count_as_waiting() -> None:
    choice = choice_of(tenant("n"), tenant("h", running=25), tenant("i", running=25), state=state_after("n", 3))
    assert picks(choice, 2) == "nn"


def test_a_share_is_by_weight_among_the_tenants_that_wait_and_run() -> None:
    def second(running: int, others: int) -> str:
        heavy = tenant("h", running=running, weight=3.0)
        return picks(choice_of(tenant("n"), heavy, slots=40, running=others, state=state_after("n", 3)))

    # 40 slots by 3 of 4, and by 3 of 8.
    assert [second(29, 0), second(30, 0), second(14, 4), second(15, 4)] == ["h", "n", "h", "n"]


def test_a_share_counts_the_tenant_itself_when_the_sum_was_cut_short() -> None:
    choice = choice_of(tenant("n"), tenant("h", running=20), state=state_after("n", 3))
    choice.weights = Weights(0, 0)
    assert picks(choice) == "h"


def test_three_in_a_row_is_no_rule_for_a_tenant_alone() -> None:
    assert picks(choice_of(tenant("a", running=49), state=state_after("a", 99))) == "a"


@pytest.mark.parametrize(("running", "expected"), [(45, "a"), (64, "a"), (65, "")])
def test_jobs_that_are_fetched_ahead_take_none_of_the_slots_that_a_tenant_may_hold(running: int, expected: str) -> None:
    assert picks(choice_of(tenant("a", running=running), slots=50, prefetch=20, running=1)) == expected


def test_prefetch_without_slots_still_lets_one_job_of_a_tenant_run() -> None:
    assert picks(choice_of(tenant("a"), tenant("b"), slots=0, prefetch=1), 9) == "aabb"


@pytest.mark.parametrize(
    ("prefetch", "expected"),
    [(0, "abcabcabc"), (9, "abcabcabc"), (10, "aabbccaab"), (20, "aaabbbccc"), (99, "aaabbbccc")],
)
def test_jobs_that_are_fetched_ahead_are_picked_in_runs(prefetch: int, expected: str) -> None:
    choice = choice_of(tenant("a"), tenant("b"), tenant("c"), slots=10, prefetch=prefetch)
    assert picks(choice, 9) == expected


def test_a_run_ends_where_a_tenant_has_no_room_or_no_job() -> None:
    limited, short = tenant("a", max_running=2), tenant("b", lane(ord("b"), ready=1))
    choice = choice_of(limited, short, tenant("c"), slots=10, prefetch=20)
    assert picks(choice, 7) == "aabcccc"


def test_a_run_that_began_in_an_earlier_claim_goes_on() -> None:
    choice = choice_of(tenant("a"), tenant("b", finish=1), slots=10, prefetch=20, state=state_after("a", 2))
    assert picks(choice, 4) == "abbb"


@pytest.mark.parametrize(("running", "slots", "expected"), [(44, 50, "a"), (45, 50, ""), (0, 1, "a")])
def test_while_another_tenant_runs_no_tenant_takes_the_last_tenth(running: int, slots: int, expected: str) -> None:
    assert picks(choice_of(tenant("a", running=running), slots=slots, running=1)) == expected


def test_while_another_tenant_waits_no_tenant_takes_the_last_tenth() -> None:
    assert picks(choice_of(tenant("a", running=9), tenant("b", running=9), slots=10)) == ""
    assert picks(choice_of(tenant("a", running=9), tenant("b", running=5), slots=10), 9) == "bbbb"


@pytest.mark.parametrize(
    ("state", "until"),
    [
        (state_after("a", 1, NOW, NOW - MINUTE + 1), NOW + 1),
        (state_after("a", 1, NOW, NOW - MINUTE), None),
        (state_after("b", 1, NOW - 1, 0), NOW - 1 + MINUTE),
        (state_after("b", 1, NOW - MINUTE, 0), None),
    ],
)
def test_the_ceiling_holds_for_a_minute_after_another_tenant_was_served(
    state: FairnessState, until: int | None
) -> None:
    choice = choice_of(tenant("a", running=9), slots=10, state=state)
    assert picks(choice) == ("a" if until is None else "")
    assert choice.ceiling_until == until


def test_a_tenant_without_a_lane_is_no_candidate_and_no_company() -> None:
    idle = Tenant(limits(ord("i")), "i", 1.0, 0, 0, [])
    choice = choice_of(idle, tenant("a"), slots=10)
    assert picks(choice, 10) == "a" * 10
    assert [update.id for update in tenant_updates(choice) if not update.is_candidate] == [ord("i")]


def test_nothing_is_chosen_when_no_tenant_has_a_lane() -> None:
    one, other = (Tenant(limits(ord(name)), name, 1.0, 0, 0, []) for name in "ab")
    assert picks(choice_of(one, other, state=state_after("a", 3))) == ""


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"permits": 0}, BlockReason.HELD),
        ({"permits": 0, "rate": Rate(count=1, window=1.0), "meter": ((NOW // 16, 1),)}, BlockReason.HELD),
        ({"running": 2, "max_running": 2}, BlockReason.FULL),
        ({"running": 2, "permits": 2}, BlockReason.FULL),
        ({"rate": Rate(count=1, window=1.0), "meter": ((NOW // 16, 1),)}, BlockReason.SPENT),
    ],
)
def test_a_tenant_at_its_own_limit_is_blocked_and_the_others_go_on(facts: dict[str, Any], reason: BlockReason) -> None:
    blocked = tenant("a", **facts)
    choice = choice_of(blocked, tenant("b", running=5))
    assert picks(choice) == "b"
    updates = {update.id: update for update in tenant_updates(choice)}
    assert updates[ord("a")].blocked is reason
    assert not updates[ord("a")].is_candidate
    assert (updates[ord("a")].reopens_at is not None) == (blocked.limits.rate is not None)
    assert updates[ord("b")].is_candidate


def test_a_tenant_takes_as_many_as_its_limits_leave_room_for() -> None:
    assert picks(choice_of(tenant("a", running=1, max_running=3)), 9) == "aa"
    assert picks(choice_of(tenant("a", running=1, permits=2, max_running=9)), 9) == "a"
    rated = tenant("a", rate=Rate(count=2, window=1.0))
    assert picks(choice_of(rated), 9) == "aa"
    assert rated.limits.meter == ((NOW // 16, 2),)


def test_a_queue_takes_as_many_as_its_limits_leave_room_for() -> None:
    choice = choice_of(tenant("a"), queue=limits(1, 1, max_running=3))
    assert picks(choice, 9) == "aa"
    assert choice.queue.running == 3


def test_a_limit_of_the_queue_counts_once_when_more_tenants_are_read() -> None:
    choice = Choice(FairnessState(0, 0, 0, 0, 0), limits(1, max_running=4), capacity=Capacity(50), now=NOW)
    choice.add([tenant("a", lane(ord("a"), ready=1)), tenant("b", lane(ord("b"), ready=1))], tenant("b").position)
    assert choice.run(9) == "tenants"
    choice.add([tenant("c"), tenant("d")], None)
    assert choice.run(9) is None
    assert "".join(chr(pick.id) for pick in choice.picks) == "abcd"


def test_inside_a_tenant_the_best_priority_comes_first_and_equals_take_turns() -> None:
    lanes = lane(ord("A"), 5, served=4), lane(ord("B"), 5, served=2), lane(ord("C"), 9)
    assert picks(choice_of(tenant("t", *lanes, served=4)), 4) == "BABA"
    assert picks(choice_of(tenant("t", *lanes, lane(ord("D"), 1, served=9), served=9))) == "D"


def test_lanes_that_are_equal_by_every_rule_are_served_as_they_are_listed() -> None:
    assert picks(choice_of(tenant("t", lane(ord("B")), lane(ord("A")))), 2) == "BA"


def test_every_sixteenth_pick_takes_from_the_lane_served_longest_ago() -> None:
    order = picks(choice_of(tenant("t", *(lane(ord(str(priority)), priority) for priority in (1, 5, 9)))), 96)
    assert [order[pick - 1] for pick in range(16, 97, 16)] == ["9", "5", "9", "5", "9", "5"]
    assert order.count("1") == 90


def test_a_lane_behind_a_full_limiter_is_blocked_and_the_next_is_served() -> None:
    full = limits(7, 1, max_running=1)
    choice = choice_of(tenant("t", lane(ord("A"), 1, full), lane(ord("B"), 5)))
    assert picks(choice, 2) == "BB"
    choice.finish()
    assert [(update.id, update.blocked_by) for update in lane_updates(choice)] == [(ord("B"), 0), (ord("A"), 7)]
    assert [(update.id, update.blocked_lanes, update.reopens_at) for update in limiter_updates(choice)] == [
        (7, 1, None),
        (1, 0, 0),
    ]


def test_a_lane_that_becomes_full_is_blocked_with_what_was_taken_from_it() -> None:
    choice = choice_of(tenant("t", lane(ord("A"), 1, limits(7, 1, max_running=2)), lane(ord("B"))))
    assert picks(choice, 2) == "AB"
    (_, blocked) = lane_updates(choice)
    assert blocked == LaneUpdate(ord("A"), 1, is_open=False, blocked_by=7, served=1)


def test_a_limiter_with_a_rate_says_when_it_has_room_again() -> None:
    rate = Rate(count=1, window=1.0)
    spent = limits(7, rate=rate, meter=spend(rate, (), NOW, 1))
    choice = choice_of(tenant("t", lane(ord("A"), 5, spent)))
    assert picks(choice) == ""
    (update,) = limiter_updates(choice)
    assert update.reopens_at == spent.reopens_at(NOW)
    assert update.reopens_at is not None
    assert NOW + 1_000 <= update.reopens_at <= NOW + 1_100
    assert update.meter == spent.meter


def test_a_tenant_whose_lanes_are_all_blocked_is_no_candidate_unless_it_has_more() -> None:
    def last(*, has_more: bool) -> tuple[bool, bool]:
        choice = choice_of(tenant("t", lane(ord("A"), 5, limits(7, permits=0)), has_more=has_more))
        assert picks(choice) == ""
        return choice.tenants[ord("t")].is_candidate, choice.is_cut

    assert last(has_more=False) == (False, False)
    assert last(has_more=True) == (True, True)


def test_a_claim_stops_at_so_many_blocked_lanes_and_says_so() -> None:
    held = limits(7, permits=0)
    lanes = [lane(number, 5, held) for number in range(1_000, 1_005)]
    tenants = [tenant(name, one) for name, one in zip("abcde", lanes, strict=True)]
    choice = choice_of(*tenants, tenant("z", finish=1), settings=FairnessSettings(max_blocked_lanes=3))
    assert picks(choice) == ""
    assert (len(choice.blocked_lanes), choice.is_cut) == (3, True)


def test_a_lane_that_is_empty_is_closed_and_its_tenant_no_candidate() -> None:
    choice = choice_of(tenant("t", lane(ord("A"), ready=2)))
    assert picks(choice, 5) == "AA"
    assert lane_updates(choice) == [LaneUpdate(ord("A"), 2, is_open=False, blocked_by=0, served=2)]
    (update,) = tenant_updates(choice)
    assert (update.is_candidate, update.running, update.load, update.served_at) == (False, 2, 2_000_000, NOW)


def test_a_lane_that_is_alone_and_goes_on_need_not_say_when_it_was_served() -> None:
    choice = choice_of(tenant("t", lane(ord("A"))))
    assert picks(choice, 5) == "AAAAA"
    assert lane_updates(choice) == [LaneUpdate(ord("A"), 5, is_open=True, blocked_by=0, served=None)]


def test_a_tenant_that_nothing_happened_to_is_not_written() -> None:
    choice = choice_of(tenant("a", finish=9), tenant("b"))
    assert picks(choice) == "b"
    assert [update.id for update in tenant_updates(choice)] == [ord("b")]


def test_a_pick_that_is_given_back_leaves_room_behind() -> None:
    rate = Rate(count=1, window=1.0)
    task, queue = limits(7, rate=rate), limits(1, max_running=2)
    choice = choice_of(tenant("t", lane(ord("A"), 5, task, limits(8))), queue=queue)
    assert picks(choice, 3) == "A"
    choice.finish()
    assert [update.running for update in limiter_updates(choice)] == [1, 1, 1]
    choice.give_back(ord("t"), choice.picks[0])
    assert [(update.running, update.reopens_at) for update in limiter_updates(choice)] == [(0, 0), (0, 0), (0, 0)]
    assert (task.meter, choice.tenants[ord("t")].limits.running) == ((), 0)


def test_a_tenant_that_has_a_slot_back_is_not_blocked_any_more() -> None:
    choice = choice_of(tenant("t", max_running=1))
    assert picks(choice, 2) == "t"
    choice.finish()
    assert choice.tenants[ord("t")].blocked is BlockReason.FULL
    choice.give_back(ord("t"), choice.picks[0])
    assert [update.blocked for update in tenant_updates(choice)] == [BlockReason.NONE]


def test_picks_are_counted_where_nothing_limits_them() -> None:
    free, other = limits(7, 3), limits(9, 5)
    choice = choice_of(tenant("t", lane(ord("A"), 5, free)))
    assert picks(choice, 4) == "AAAA"
    choice.finish()
    assert [(update.id, update.running) for update in limiter_updates(choice, [other])] == [(9, 5), (7, 7), (1, 4)]


def test_limits_of_the_queue_are_written_when_others_ask_for_it() -> None:
    choice = choice_of()
    assert picks(choice) == ""
    assert limiter_updates(choice) == []
    assert [update.id for update in limiter_updates(choice, [choice.queue])] == [1]


def test_more_tenants_are_asked_for_only_when_the_next_may_be_among_them() -> None:
    choice = Choice(FairnessState(0, 0, 0, 0, 0), limits(1), capacity=Capacity(50), now=NOW)
    assert choice.run(1) == "tenants"
    choice.add([tenant("a"), tenant("b")], tenant("b").position)
    assert choice.run(2) is None
    assert choice.run(3) == "tenants"
    choice.add([tenant("a"), tenant("c")], None)
    assert choice.run(3) is None
    assert "".join(chr(pick.id) for pick in choice.picks) == "abc"


def test_weights_are_asked_for_only_when_the_choice_depends_on_them() -> None:
    for tenants, state in (
        ([tenant("n"), tenant("h", running=20)], state_after("n", 3)),
        ([tenant("a", running=45)], None),
    ):
        choice = choice_of(*tenants, state=state)
        choice.weights = None
        assert choice.run(1) == "weights"
        choice.weights = Weights(2_000, 0)
        assert choice.run(1) is None
        assert len(choice.picks) == 1


def test_whether_a_tenant_is_alone_is_known_when_all_were_read() -> None:
    choice = Choice(FairnessState(0, 0, 0, 0, 0), limits(1), capacity=Capacity(10), now=NOW)
    hog = tenant("a", running=9)
    choice.add([hog], hog.position)
    assert choice.run(1) == "tenants"
    choice.add([Tenant(limits(ord("b"), 10), "b", 1.0, 0, 0, [])], None)
    assert choice.run(1) == "weights"
    choice.weights = Weights(1_000, 0)
    assert choice.run(1) is None
    assert len(choice.picks) == 1


def test_the_numbers_of_fairness_can_be_others() -> None:
    newcomer, hog = tenant("n"), tenant("h", running=20)
    settings = FairnessSettings(max_in_a_row=4)
    assert picks(choice_of(newcomer, hog, state=state_after("n", 3), settings=settings)) == "n"
    assert picks(choice_of(tenant("a", running=45), running=1, settings=FairnessSettings(max_share_of_slots=1))) == "a"
    often = FairnessSettings(oldest_every_picks=2)
    assert picks(choice_of(tenant("t", lane(ord("A"), 1), lane(ord("B"), 9)), settings=often), 4) == "ABAB"
    short = FairnessSettings(activity_window_seconds=1)
    state = state_after("a", 1, NOW, NOW - 1_000)
    assert picks(choice_of(tenant("a", running=9), slots=10, state=state, settings=short)) == "a"


@pytest.mark.parametrize(
    "numbers",
    [{"max_in_a_row": 0}, {"max_share_of_slots": 0}, {"max_share_of_slots": 1.1}, {"max_lanes_read": 0}],
)
def test_numbers_that_would_stop_everything_are_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        FairnessSettings(**numbers)  # type: ignore[arg-type]  # which is the point


def test_priority_ages_by_round_and_stops_at_one() -> None:
    assert [aged_priority(rounds) for rounds in (0, 1, 3, 4, 100)] == [5, 4, 2, 1, 1]
    assert aged_priority(2, FairnessSettings(base_priority=9, priority_increment=3)) == 3


@given(st.integers(0, 2**32))
def test_picks_do_not_depend_on_how_many_tenants_are_read_at_once(number: int) -> None:
    situation = draw(Random(number))
    results = []
    for at_once in (2, 3, 100):
        choice = Reading(situation, at_once).choose()
        results.append(
            (
                [pick.id for pick in choice.picks],
                {lane: blocked.limiter.id for lane, blocked in choice.blocked_lanes.items()},
                choice.state.clock,
                choice.is_cut,
                choice.ceiling_until,
            )
        )
    assert results[0] == results[1] == results[2]


@given(st.integers(0, 2**32))
def test_no_limit_is_ever_exceeded_and_no_lane_gives_more_than_it_has(number: int) -> None:
    situation = draw(Random(number))
    choice = Reading(situation, 3).choose()
    taken = Counter(pick.id for pick in choice.picks)
    lanes = {lane.number: lane for one in situation.tenants for lane in one.lanes}
    assert len(choice.picks) <= situation.limit
    assert all(count <= lanes[one].ready for one, count in taken.items())
    by_tenant = {one.number: sum(taken[lane.number] for lane in one.lanes) for one in situation.tenants}
    through = Counter(
        {place: sum(taken[n] for n, lane in lanes.items() if place in lane.limiters) for place in range(9)}
    )
    counted = [(one.limits, by_tenant[one.number]) for one in situation.tenants]
    counted += [(facts, through[place]) for place, facts in enumerate(situation.limiters)]
    counted.append((situation.queue, len(choice.picks)))
    for facts, count in counted:
        room = facts.make(0).room(situation.now)
        assert room is None or count <= room


@given(st.integers(0, 2**32))
def test_what_is_left_is_kept_by_a_limit_the_ceiling_or_a_cut(number: int) -> None:
    situation = draw(Random(number))
    choice = Reading(situation, 3).choose()
    room = situation.queue.make(0).room(situation.now)
    if len(choice.picks) == situation.limit or choice.is_cut or room == len(choice.picks):
        return
    ceiling = (
        max(1, int(situation.capacity.slots * situation.settings.max_share_of_slots)) + situation.capacity.prefetch
    )
    for one in choice.tenants.values():
        has_open_lanes = any(lane.id not in choice.blocked_lanes for lane in one.lanes)
        assert one.blocked or not has_open_lanes or one.limits.running >= ceiling


def test_a_position_comes_before_another_by_load_then_finish_then_name() -> None:
    b, a, early, idle = Position(1, 1, "b"), Position(1, 1, "a"), Position(1, 0, "z"), Position(0, 9, "z")
    assert sorted([b, a, early, idle]) == [idle, early, a, b]
