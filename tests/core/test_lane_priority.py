"""The priority of a lane: jobs with an SLA come first among jobs of their own priority."""

from msgspec.structs import replace

from reprieve.core.headers import Headers
from reprieve.core.job import HIGH, LOW, Job

PLAIN = Job(id="j", task="send", created_at=0, due_at=0)
TAGGED = replace(PLAIN, headers=Headers(tags=("nightly",)))
TIMED = replace(PLAIN, headers=Headers(sla_at=5))


def test_only_an_sla_changes_the_priority_of_a_lane() -> None:
    assert (PLAIN.sla_at, TAGGED.sla_at, TIMED.sla_at) == (None, None, 5)
    assert PLAIN.lane_priority == TAGGED.lane_priority == TIMED.lane_priority + 1


def test_no_sla_comes_before_a_better_priority() -> None:
    lanes = [
        replace(job, priority=priority).lane_priority for priority in range(HIGH, LOW + 1) for job in (TIMED, PLAIN)
    ]
    assert lanes == list(range(1, 2 * LOW + 1))
