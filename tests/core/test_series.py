"""Series: what counts as what, in which bucket of time, and which names have lines."""

import pytest

from reprieve.core import change
from reprieve.core.job import Cause, Job
from reprieve.core.move import (
    Cancel,
    Dead,
    ManualRetry,
    Move,
    Park,
    Retry,
    Return,
    Revive,
    Snooze,
    Start,
    Succeed,
)
from reprieve.core.series import (
    COUNTERS,
    EDGES_MS,
    HISTOGRAM_BUCKETS,
    MAX_CODES,
    NUMBERS,
    OTHERS,
    RUN_FROM,
    WAIT_FROM,
    Bucket,
    Line,
    SeriesDelta,
    SeriesPoint,
    add,
    bucket_at,
    delta_of,
    events_in,
    merge,
    pack_deltas,
    pack_line,
    point,
    success_number,
    sums,
    unpack_deltas,
    unpack_line,
)

NOW = 1_760_000_045_678
CAUSE = Cause(reason="busy", code="450")
WAITING = Job(
    id="0199c82c-c000-7abc-8def-2f6e11c40ae2", task="send", queue="mail", tenant="a", created_at=NOW, due_at=NOW
)
RUNNING = change.lease(WAITING, "worker-1", NOW).job
DEAD = change.make(RUNNING, Dead(death="permanent", cause=CAUSE), NOW).job


def counted(**counts: int) -> Line:
    return {COUNTERS.index(name): count for name, count in counts.items()}


@pytest.mark.parametrize(
    ("job", "move", "numbers"),
    [
        (RUNNING, Retry(due_at=NOW, cause=CAUSE, delay=1.0), counted(retried=1)),
        (RUNNING, Retry(due_at=NOW, cause=CAUSE, delay=1.0, charged=False), counted(retried=1, spared=1)),
        (RUNNING, Park(gate="g", due_at=NOW, cause=CAUSE), counted(parked=1, spared=1)),
        (RUNNING, Park(gate="g", due_at=NOW, cause=CAUSE, charged=True), counted(parked=1)),
        (RUNNING, Dead(death="permanent", cause=CAUSE), {"450": 1}),
        (RUNNING, Dead(death="futile", cause=CAUSE, spared=True), {"450": 1} | counted(spared=1)),
        (RUNNING, Dead(death="poison", cause=Cause(reason="it crashes")), {"poison": 1}),
        (WAITING, Dead(death="expired", cause=CAUSE), {"expired": 1}),
        (RUNNING, Return(crashed=True), counted(recovered=1)),
        (RUNNING, Snooze(due_at=NOW), counted(snoozed=1)),
        (RUNNING, Cancel(), counted(cancelled=1)),
        (DEAD, ManualRetry(by="ana", reason="again", due_at=NOW), counted(manually_retried=1)),
        (DEAD, Revive(due_at=NOW), counted(revived=1)),
    ],
)
def test_change_counts_as_what_happened_in_its_minute(job: Job, move: Move, numbers: Line) -> None:
    assert delta_of(change.make(job, move, NOW)) == SeriesDelta(NOW // 60_000, "mail", "send", "", "a", numbers)


@pytest.mark.parametrize(("job", "move"), [(RUNNING, Succeed()), (WAITING, Start(session="s")), (RUNNING, Return())])
def test_what_workers_count_is_not_counted_by_the_change(job: Job, move: Move) -> None:
    assert delta_of(change.make(job, move, NOW)) is None


def test_bucket_begins_at_a_whole_step_of_utc() -> None:
    assert bucket_at(NOW, "minute") == 1_760_000_040_000
    assert bucket_at(NOW, "ten_minutes") == 1_759_999_800_000
    assert bucket_at(NOW, "hour") == 1_759_996_800_000
    assert bucket_at(1_760_000_040_000, "minute") == 1_760_000_040_000


def test_success_counts_by_its_attempt() -> None:
    names = [COUNTERS[success_number(attempt)] for attempt in (1, 2, 3, 4, 5, 1_000)]
    assert names == [f"succeeded_{number}" for number in (1, 2, 3, 4, 4, 4)]


def test_measures_of_a_line_have_numbers_of_their_own() -> None:
    assert EDGES_MS[:4] == (1, 2, 5, 10)
    assert EDGES_MS[-1] == 50_000_000
    assert len(COUNTERS) <= WAIT_FROM
    assert WAIT_FROM + HISTOGRAM_BUCKETS <= RUN_FROM
    assert RUN_FROM + HISTOGRAM_BUCKETS <= NUMBERS


def test_job_without_tenant_or_dependency_has_no_line_of_them() -> None:
    assert list(SeriesDelta(1, "mail", "send", "", "", {}).names()) == [
        ("all", ""),
        ("queue", "mail"),
        ("task", "send"),
    ]
    named = SeriesDelta(1, "mail", "send", "ses", "a", {}).names()
    assert list(named)[3:] == [("dependency", "ses"), ("tenant", "a")]


def test_deltas_are_summed_in_every_step() -> None:
    deltas = [
        SeriesDelta(minute, "mail", "send", "", tenant, {1: 2}) for minute, tenant in ((9, "a"), (9, "b"), (10, "a"))
    ]
    found = sums(deltas, {"minute": 0, "ten_minutes": 0, "hour": 0})
    assert len(found) == 4 * (2 + 2 + 1)
    assert found[Bucket("minute", 9 * 60_000, "queue")] == {"mail": {1: 4}}
    assert found[Bucket("ten_minutes", 0, "tenant")] == {"a": {1: 2}, "b": {1: 2}}
    assert found[Bucket("hour", 0, "tenant")] == {"a": {1: 4}, "b": {1: 2}}
    assert found[Bucket("hour", 0, "all")] == {"": {1: 6}}
    kept = sums(deltas, {"minute": 10 * 60_000, "ten_minutes": 600_000, "hour": 1})
    assert {(bucket.step, bucket.at) for bucket in kept} == {("minute", 600_000), ("ten_minutes", 600_000)}


def test_new_names_with_the_most_jobs_get_the_lines_that_are_left() -> None:
    stored: dict[str, Line] = {"a": {1: 1}}
    added: dict[str, Line] = {"small": {1: 1}, "large": {1: 9}, "a": {1: 1}, "waiting": {COUNTERS.index("slot_ms"): 99}}
    assert merge(stored, added, 2) == {"large": {1: 9}, "a": {1: 2}, OTHERS: {1: 1, COUNTERS.index("slot_ms"): 99}}
    assert stored == {"a": {1: 1}}, "what was stored is not changed"


def test_names_without_a_line_add_to_the_others() -> None:
    stored: dict[str, Line] = {"a": {1: 1}, "b": {1: 1}, OTHERS: {1: 5}}
    assert merge(stored, {"c": {1: 2}, "d": {0: 1}}, 2) == {OTHERS: {1: 7, 0: 1}}
    assert merge({"a": {1: 1}, "b": {1: 1}, "c": {1: 1}}, {"d": {1: 1}}, 2) == {OTHERS: {1: 1}}


def test_line_tells_only_so_many_codes_apart() -> None:
    line: Line = {1: 1}
    for number in range(MAX_CODES + 3):
        add(line, {f"code-{number}": 1})
    add(line, {"code-0": 1, 1: 1})
    assert line[OTHERS] == 3
    assert line["code-0"] == 2
    assert line[1] == 2
    assert len(line) == MAX_CODES + 2


def test_names_are_ranked_by_events_and_not_by_times() -> None:
    assert (
        events_in(counted(enqueued=1, started=2, retried=3, slot_ms=1_000, retry_credits=7) | {"450": 4, WAIT_FROM: 9})
        == 10
    )


def test_point_has_what_is_wanted() -> None:
    line = counted(started=2, retried=1) | {"450": 3, WAIT_FROM + 1: 4, RUN_FROM: 5}
    whole = point(NOW, line)
    assert whole.counts == {"started": 2, "retried": 1}
    assert whole.died == {"450": 3}
    assert whole.waits == (0, 4, *(0,) * (HISTOGRAM_BUCKETS - 2))
    assert whole.runs == (5, *(0,) * (HISTOGRAM_BUCKETS - 1))
    assert point(NOW, line, frozenset({"started"})) == SeriesPoint(at=NOW, counts={"started": 2})
    assert point(NOW, {1: 2}) == SeriesPoint(at=NOW, counts={"started": 2})


def test_what_is_packed_is_read_and_what_is_damaged_counts_nothing() -> None:
    deltas = [SeriesDelta(1, "mail", "send", "", "größe", {1: 2, "450": 3})]
    assert unpack_deltas(pack_deltas(deltas)) == deltas
    assert unpack_line(pack_line({1: 2, "450": 3})) == {1: 2, "450": 3}
    assert unpack_deltas(b"\xff?") == []
    assert unpack_line(b"") == {}
