"""Dead-letter entries."""

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.deadletter import MAX_ENTRIES, TTL_MS, entry_of, validate_dlq_entry
from reprieve.core.job import Cause, Job
from reprieve.core.move import Dead
from reprieve.errors import InvalidDeadLetter

NOW = 1_760_000_000_000
WAITING = Job(id="j", task="send", tenant="acme", key="out-1", created_at=NOW, due_at=NOW)
RUNNING = change.lease(WAITING, "w", NOW + 1_000).job
DEAD = change.settle(
    RUNNING,
    Dead(death="permanent", cause=Cause(reason="550 no such user", code="550"), charged=True),
    NOW + 2_000,
).job
ENTRY: dict[str, object] = {
    "jobId": "123e4567-e89b-12d3-a456-426614174000",
    "outboxId": "123e4567-e89b-12d3-a456-426614174000",
    "companyId": "789e4567-e89b-12d3-a456-426614174999",
    "originalData": {"to": "a@example.org"},
    "failedAttempts": 5,
    "lastFailureReason": "SMTP 550: Mailbox not found",
    "lastFailureCode": "550",
    "lastFailureTimestamp": "2025-10-19T10:30:00.000Z",
    "enqueuedAt": "2025-10-19T10:00:00.000Z",
    "movedToDLQAt": "2025-10-19T10:30:01.000Z",
    "ttl": 604_800_000,
}


def test_an_entry_is_kept_for_seven_days_and_ten_thousand_a_queue() -> None:
    assert (TTL_MS, MAX_ENTRIES) == (604_800_000, 10_000)


def test_a_dead_job_is_described() -> None:
    entry = entry_of(DEAD, {"to": "a@example.org"})
    assert (entry.job_id, entry.outbox_id, entry.company_id) == ("j", "out-1", "acme")
    assert (entry.failed_attempts, entry.reason_kind, entry.ttl) == (1, "permanent", TTL_MS)
    assert (entry.last_failure_reason, entry.last_failure_code) == ("550 no such user", "550")
    assert entry.enqueued_at == datetime.fromtimestamp(NOW / 1_000, UTC)
    assert entry.moved_at == entry.last_failure_timestamp == datetime.fromtimestamp(NOW / 1_000 + 2, UTC)
    assert entry.original_data == {"to": "a@example.org"}


def test_an_entry_on_the_wire_has_the_known_words() -> None:
    wire = msgspec.json.decode(msgspec.json.encode(entry_of(replace(DEAD, key=""), None)))
    assert wire["movedToDLQAt"] == "2025-10-09T08:53:22Z"
    assert (wire["ttl"], wire["outboxId"]) == (604_800_000, "")
    assert set(ENTRY) - set(wire) == set()


def test_a_job_that_never_ran_may_still_be_described() -> None:
    expired = change.expire(WAITING, NOW + 5).job
    assert entry_of(expired, None).failed_attempts == 0
    assert entry_of(expired, None).last_failure_code == "expired"
    without_code = Job(
        id="j", task="t", created_at=NOW, due_at=NOW, death="manual", finished_at=NOW, cause=Cause(reason="x")
    )
    assert entry_of(without_code, None).last_failure_code is None
    assert entry_of(without_code, None).last_failure_timestamp == datetime.fromtimestamp(NOW / 1_000, UTC)


def test_a_living_job_has_no_entry() -> None:
    with pytest.raises(InvalidDeadLetter, match="job j is waiting"):
        entry_of(WAITING, None)


def test_a_complete_entry_is_valid() -> None:
    entry = validate_dlq_entry(ENTRY)
    assert entry.last_failure_reason == "SMTP 550: Mailbox not found"
    assert entry.moved_at == datetime(2025, 10, 19, 10, 30, 1, tzinfo=UTC)
    assert validate_dlq_entry({**ENTRY, "lastFailureCode": None}).last_failure_code is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lastFailureReason": ""}, "lastFailureReason must say"),
        ({"lastFailureReason": "  "}, "lastFailureReason must say"),
        ({"lastFailureReason": None}, "lastFailureReason"),
        ({"jobId": " "}, "jobId must name"),
        ({"failedAttempts": 0}, "must be 1 or more, got 0"),
        ({"failedAttempts": -1, "reasonKind": "expired"}, "must be 0 or more, got -1"),
        ({"ttl": 0}, "ttl must be .* got 0"),
        ({"enqueuedAt": "yesterday"}, "enqueuedAt"),
        ({"enqueuedAt": "2025-10-19T10:00:00"}, "enqueuedAt"),
        ({"reasonKind": "bored"}, "reasonKind"),
    ],
)
def test_an_entry_that_leaves_people_in_the_dark_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidDeadLetter, match=words) as caught:
        validate_dlq_entry({**ENTRY, **change})
    assert caught.value.code == "invalid_dead_letter"


def test_an_entry_without_its_reason_is_refused() -> None:
    entry = dict(ENTRY)
    del entry["lastFailureReason"]
    with pytest.raises(InvalidDeadLetter, match="lastFailureReason"):
        validate_dlq_entry(entry)
