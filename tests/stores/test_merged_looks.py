"""Looks at several partitions are merged without skipping jobs."""

from uuid import UUID

from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.stores.merged_looks import merge_looks
from reprieve.stores.places import PLACES, LaneGroup, Place, PlaceKey, Position
from reprieve.stores.search import Found, Look

READY, DELAYED = PLACES.index("ready"), PLACES.index("delayed")


def found(place: Place, at: int, number: int, group: LaneGroup | None = None) -> Found:
    job = Job(id=str(UUID(int=number)), task="send", created_at=at, due_at=at)
    status: Status = "ready" if place == "ready" else "scheduled"
    return Found(Position(PLACES.index(place), PlaceKey(group, at, UUID(int=number).hex)), job, status)


def test_partition_that_stopped_before_a_place_holds_back_the_jobs_of_later_places() -> None:
    other = Look([found("delayed", 5, 1)], None)
    looked, following = merge_looks([Look((), Position(READY, None)), other], [Position(0, None)] * 2, 10, newest=False)
    assert looked.found == []
    assert following == [Position(READY, None), Position(0, None)]


def test_partition_that_stopped_before_a_group_of_lanes_holds_back_the_jobs_of_later_places() -> None:
    stopped = Position(READY, PlaceKey(LaneGroup("k", ""), -1, ""))
    ready, delayed = found("ready", 5, 1, LaneGroup("", "")), found("delayed", 6, 2)
    looked, following = merge_looks(
        [Look((), stopped), Look([ready, delayed], None)], [Position(0, None)] * 2, 10, newest=False
    )
    assert looked.found == [ready]
    assert following == [stopped, ready.position]


def test_jobs_of_an_earlier_group_of_lanes_are_not_skipped_for_older_ones_of_the_next_group() -> None:
    first, second = found("ready", 9, 1, LaneGroup("", "k")), found("ready", 1, 2, LaneGroup("k", ""))
    start = Position(0, None)
    looked, following = merge_looks([Look([first, second], None)], [start], 1, newest=False)
    assert looked.found == [first]
    assert following == [first.position]
