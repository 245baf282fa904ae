"""Whose job is next, and where it comes from."""

import heapq
from collections import defaultdict

import pytest
from msgspec.structs import replace

from reprieve.core.fairness import Crowd, Fairness, Tenant, Turn, aged_priority, arrive, choose, grant, measure
from reprieve.core.job import Job
from reprieve.core.lane import Lane, Shelf, choose_shelf, lane_of
from reprieve.errors import ValidationError

NOW = 1_760_000_000_000


class Fleet:
    """A fleet in virtual time: tenants with endless backlogs of jobs of one length, and so many slots."""

    def __init__(self, slots: int, lengths: dict[str, float], weights: dict[str, float] | None = None) -> None:
        self.slots = slots
        self.lengths = lengths
        self.tenants = {name: Tenant(name=name, weight=(weights or {}).get(name, 1.0)) for name in lengths}
        self.now = 0.0
        self.turn = Turn()
        self.running: list[tuple[float, str]] = []
        self.seconds: dict[str, float] = defaultdict(float)
        self.order: list[str] = []

    def run(self, length: float) -> None:
        end = self.now + length
        while self.now < end:
            while len(self.running) < self.slots and self.lease():
                pass
            self.now, name = heapq.heappop(self.running)
            tenant = self.tenants[name]
            self.tenants[name] = replace(tenant, running=tenant.running - 1)
            self.seconds[name] += self.lengths[name]

    def lease(self) -> bool:
        chosen = choose(Crowd(waiting=tuple(self.tenants.values()), slots=self.slots), self.turn)
        if chosen is None:
            return False
        self.tenants[chosen.name], self.turn = grant(chosen, self.turn, int(self.now))
        heapq.heappush(self.running, (self.now + self.lengths[chosen.name], chosen.name))
        self.order.append(chosen.name)
        return True


def jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def test_equal_tenants_take_turns() -> None:
    fleet = Fleet(6, {"a": 1, "b": 1, "c": 1})
    fleet.run(0.5)
    assert fleet.order[:6] == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize("lengths", [{"a": 5, "b": 0.5}, {"a": 5, "b": 0.5, "c": 1, "d": 0.1}])
def test_tenants_get_equal_seconds_whatever_their_jobs_last(lengths: dict[str, float]) -> None:
    fleet = Fleet(20, lengths)
    fleet.run(600)
    assert jain(list(fleet.seconds.values())) >= 0.99


def test_weights_divide_the_seconds() -> None:
    weights = {"gold": 6.0, "free": 1.0}
    fleet = Fleet(35, {"gold": 0.5, "free": 2}, weights)
    fleet.run(600)
    shares = [fleet.seconds[name] / weight for name, weight in weights.items()]
    assert jain(shares) >= 0.99


def test_who_holds_the_fewest_slots_for_its_weight_is_next() -> None:
    crowd = Crowd(waiting=(Tenant(name="a", running=4), Tenant(name="b", running=6, weight=2.0)), slots=50)
    chosen = choose(crowd, Turn())
    assert chosen is not None
    assert chosen.name == "b"


def test_among_equals_virtual_time_decides() -> None:
    crowd = Crowd(waiting=(Tenant(name="a", finish=5.0), Tenant(name="b", finish=4.0)), slots=50)
    chosen = choose(crowd, Turn(clock=3.0))
    assert chosen is not None
    assert chosen.name == "b"


def test_time_away_is_not_saved_up() -> None:
    assert arrive(Tenant(name="a", finish=5.0), Turn(clock=9.0)).finish == 9.0
    assert arrive(Tenant(name="a", finish=5.0), Turn(clock=3.0)).finish == 5.0


def test_at_most_three_in_a_row_while_another_waits_below_its_share() -> None:
    newcomer, hog = Tenant(name="new"), Tenant(name="hog", running=20)
    crowd = Crowd(waiting=(newcomer, hog), slots=50)
    for streak, expected in ((2, "new"), (3, "hog")):
        chosen = choose(crowd, Turn(last="new", streak=streak))
        assert chosen is not None
        assert chosen.name == expected


def test_a_tenant_at_its_share_does_not_count_as_waiting() -> None:
    crowd = Crowd(waiting=(Tenant(name="new"), Tenant(name="hog", running=25)), slots=50)
    chosen = choose(crowd, Turn(last="new", streak=3))
    assert chosen is not None
    assert chosen.name == "new"


def test_three_in_a_row_is_no_rule_for_a_tenant_alone() -> None:
    alone = Crowd(waiting=(Tenant(name="a", running=49),), slots=50)
    chosen = choose(alone, Turn(last="a", streak=99))
    assert chosen is not None
    assert chosen.name == "a"


def test_while_others_are_active_no_tenant_takes_the_last_tenth() -> None:
    others = (Tenant(name="b"),)
    assert choose(Crowd(waiting=(Tenant(name="a", running=44),), active=others, slots=50), Turn()) is not None
    assert choose(Crowd(waiting=(Tenant(name="a", running=45),), active=others, slots=50), Turn()) is None
    assert choose(Crowd(waiting=(Tenant(name="a"),), active=others, slots=1), Turn()) is not None


def test_nobody_waits_and_nobody_is_chosen() -> None:
    assert choose(Crowd(waiting=(), slots=5), Turn()) is None


def test_a_share_is_by_weight_among_everybody_active() -> None:
    crowd = Crowd(waiting=(Tenant(name="a", weight=3.0),), active=(Tenant(name="b"),), slots=40)
    assert crowd.share_of(crowd.waiting[0]) == 30


def test_a_grant_moves_the_tenant_on_and_counts_the_streak() -> None:
    tenant, turn = grant(Tenant(name="a", weight=2.0, finish=1.0, served=7), Turn(clock=3.0, last="a", streak=2), NOW)
    assert (tenant.running, tenant.finish, tenant.served, tenant.served_at) == (1, 1.5, 8, NOW)
    assert turn == Turn(clock=3.0, last="a", streak=3)
    _, other = grant(Tenant(name="b", finish=4.0), turn, NOW)
    assert other == Turn(clock=4.0, last="b", streak=1)


def test_a_flood_does_not_bury_a_small_tenant() -> None:
    fleet = Fleet(10, {"flood": 1})
    fleet.run(50)
    fleet.order.clear()
    fleet.lengths["small"], fleet.tenants["small"] = 1, Tenant(name="small")
    fleet.run(10)
    tenth_of_small = [number for number, name in enumerate(fleet.order) if name == "small"][9]
    assert fleet.order[:tenth_of_small].count("flood") <= 33


def test_metrics_are_those_that_people_watch() -> None:
    waiting = Tenant(name="a", finish=1.0, served=12, served_at=NOW)
    metrics = measure(waiting, Turn(clock=4.5, last="b", streak=2))
    assert (metrics.tenant, metrics.rounds_without_processing, metrics.current_priority) == ("a", 3, 2)
    assert (metrics.consecutive_batch_count, metrics.total_processed, metrics.last_processed_at) == (
        0,
        12,
        NOW,
    )
    served = measure(Tenant(name="b", finish=9.0), Turn(clock=4.5, last="b", streak=2))
    assert (served.rounds_without_processing, served.current_priority, served.consecutive_batch_count) == (
        0,
        5,
        2,
    )


def test_priority_ages_by_round_and_stops_at_one() -> None:
    assert [aged_priority(rounds) for rounds in (0, 1, 3, 4, 100)] == [5, 4, 2, 1, 1]
    assert aged_priority(2, Fairness(base_priority=9, priority_increment=3)) == 3
    assert measure(Tenant(name="a"), Turn(clock=2.0), Fairness(priority_increment=2)).current_priority == 1


def test_the_numbers_of_fairness_can_be_others() -> None:
    crowd = Crowd(waiting=(Tenant(name="new"), Tenant(name="hog", running=20)), slots=50)
    chosen = choose(crowd, Turn(last="new", streak=3), Fairness(most_in_a_row=4))
    assert chosen is not None
    assert chosen.name == "new"
    full = Crowd(waiting=(Tenant(name="a", running=45),), active=(Tenant(name="b"),), slots=50)
    assert choose(full, Turn(), Fairness(most_slots=1)) is not None


@pytest.mark.parametrize("numbers", [{"most_in_a_row": 0}, {"most_slots": 0}, {"most_slots": 1.1}])
def test_numbers_that_would_stop_everything_are_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Fairness(**numbers)  # type: ignore[arg-type]  # which is the point


@pytest.mark.parametrize("weight", [0.0, 0.0009, -1.0, 1_001.0, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ValidationError, match="give a number from"):
        Tenant(name="a", weight=weight)


def shelf(task: str, priority: int, served: int = 0) -> Shelf:
    return Shelf(lane=Lane(queue="q", tenant="t", task=task, dependency=""), priority=priority, served=served)


def test_inside_a_tenant_the_best_priority_comes_first_and_equals_take_turns() -> None:
    shelves = [shelf("a", 5, served=4), shelf("b", 5, served=2), shelf("c", 9)]
    assert choose_shelf(shelves, 1) is shelves[1]
    assert choose_shelf([*shelves, shelf("d", 1, served=9)], 15).priority == 1


def test_every_sixteenth_pick_takes_from_what_was_served_longest_ago() -> None:
    shelves = {priority: shelf("a", priority) for priority in (1, 5, 9)}
    served: list[int] = []
    for pick in range(1, 97):
        chosen = choose_shelf(list(shelves.values()), pick)
        shelves[chosen.priority] = replace(chosen, served=pick)
        served.append(chosen.priority)
    assert [served[pick - 1] for pick in range(16, 97, 16)] == [9, 5, 9, 5, 9, 5]
    assert served.count(1) == 90


def test_a_lane_is_what_its_jobs_have_in_common() -> None:
    job = Job(id="j", queue="q", tenant="t", task="send", dependency="ses", created_at=NOW, due_at=NOW)
    assert lane_of(job) == Lane(queue="q", tenant="t", task="send", dependency="ses")
