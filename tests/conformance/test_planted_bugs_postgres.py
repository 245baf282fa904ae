"""The suite notices on PostgreSQL too: each bug is planted in a table, by a trigger, or in a function of the store.

A trigger changes what the store writes, and a replaced function what the store does; both are bound to a column or to a
name, not to the text of the code.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from msgspec.structs import replace

from reprieve.core.change import Change
from reprieve.stores import record
from reprieve.stores.open import diagnostics_for, open_store
from reprieve.stores.postgres import claim, leases, queue_claim, rows, sessions, settle, write_batch
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.protocol import Store
from tests.conformance.planting import survives
from tests.servers.postgres import drop_schema

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class TriggerBug:
    """What a trigger does before a row is written; `old` and `new` are the row."""

    name: str
    table: str
    event: str
    body: str
    found_by: str


@dataclass(frozen=True)
class PatchBug:
    """What is put in the place of a function of the store."""

    name: str
    patch: Patch
    found_by: str


class AnyVersion(int):
    """Equal to every version."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def _ignore_fencing_token(patch: pytest.MonkeyPatch) -> None:
    end = leases.Leases.end
    patch.setattr(leases.Leases, "end", lambda self, session, job, _: end(self, session, job, AnyVersion()))


def _ignore_version_of_waiting_jobs(patch: pytest.MonkeyPatch) -> None:
    remove = settle._UnleasedJobs.remove  # noqa: SLF001 - the bug is planted there

    def remove_any(self: Any, change: Change, batch: write_batch.WriteBatch) -> int | None:  # noqa: ANN401 - private
        row = self._rows.get(change.job.id)
        return remove(self, replace(change, version=row.version) if row else change, batch)

    patch.setattr(settle._UnleasedJobs, "remove", remove_any)  # noqa: SLF001 - as above


def _serve_stale_calls(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claim, "require_session", lambda session, _: session)


def _run_expired_jobs(patch: pytest.MonkeyPatch) -> None:
    copy = rows.copy
    patch.setattr(queue_claim, "copy", lambda model, row: replace(copy(model, row), deadline_at=None))


def _promote_early(patch: pytest.MonkeyPatch) -> None:
    begin = ClaimLock.begin_claim
    patch.setattr(
        ClaimLock, "begin_claim", lambda self, tx, queues, now, most: begin(self, tx, queues, now + 1_000, most)
    )


def _recover_from_the_living(patch: pytest.MonkeyPatch) -> None:
    recover = sessions.recover
    patch.setattr(
        sessions, "recover", lambda tx, lock, lanes, now, limit: recover(tx, lock, lanes, now + 60_000, limit)
    )


def _take_every_change_for_a_repeat(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settle, "_why_not_applied", lambda *_: "already")


def _forget_cancel_requests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write_batch, "cancels", lambda _: {})


def _count_no_attempt(patch: pytest.MonkeyPatch) -> None:
    model = record.lease_model
    patch.setattr(queue_claim, "lease_model", lambda job, lease: replace(model(job, lease), attempt=0))


def _trust_the_early_read(patch: pytest.MonkeyPatch) -> None:
    def unless_changed(self: Any, released: object) -> object:  # noqa: ANN401 - private
        if self._reader is None:
            return None
        self._reader.use(released)
        return self._reader, self._result

    patch.setattr(claim._EarlyRead, "unless_changed", unless_changed)  # noqa: SLF001 - the bug is planted there


BUGS = (
    TriggerBug(
        "a fresh job stays on its lane when it is leased",
        *("lane", "update", "new.fresh_watermark := old.fresh_watermark; return new;"),
        "leased_job_is_leased_once",
    ),
    TriggerBug(
        "a job that returned stays on its lane when it is leased",
        *("ready", "delete", "return null;"),
        "older_job_that_is_retried_after_a_younger_one_is_taken",
    ),
    TriggerBug(
        "an older retry is behind the ready watermark",
        *("lane", "update", "new.ready_watermark := greatest(old.ready_watermark, new.ready_watermark); return new;"),
        "older_job_that_is_retried_after_a_younger_one_is_taken",
    ),
    TriggerBug(
        "the lane of a cancelled job is forgotten",
        *("lane", "update", "new.cancelled := 0; return new;"),
        "name_of_a_job_that_is_kept_stays",
    ),
    TriggerBug(
        "a tenant does not count its lanes",
        *("tenant", "insert", "new.lanes := 0; return new;"),
        "name_of_a_job_that_is_kept_stays",
    ),
    TriggerBug(
        "a repeated claim leases again",
        *("session", "update", "new.last_claim := 0; return new;"),
        "repeated_claim_answers_the_same_jobs",
    ),
    TriggerBug(
        "dead sessions come back to life",
        *("session", "update", "new.is_dead := false; return new;"),
        "dead_session_stays_dead",
    ),
    TriggerBug(
        "limiters leak slots",
        *("limiter", "update", "new.running := greatest(old.running, new.running); return new;"),
        "limit_leaks_no_slot_however_an_attempt_ends",
    ),
    TriggerBug(
        "tenants leak slots",
        *("tenant", "update", "new.running := greatest(old.running, new.running); return new;"),
        "gauges_say_what_runs",
    ),
    TriggerBug(
        "permits are ignored",
        *("limiter", "update", "new.permits := null; return new;"),
        "ramp_lets_so_many_be_under_way",
    ),
    TriggerBug(
        "rates are not spent",
        *("limiter", "update", "new.meter := '[]'; return new;"),
        "no_window_sees_more_than_the_rate",
    ),
    TriggerBug(
        "weights are ignored",
        *("tenant", "insert or update", "new.weight := 1; return new;"),
        "slots_are_shared_by_weight",
    ),
    TriggerBug(
        "a lane behind a full limiter is never opened again",
        *("limiter", "update", "new.reopens_at := null; new.has_blocked_lanes := false; return new;"),
        "raised_limit_frees_at_once_what_waited",
    ),
    TriggerBug(
        "a pause is ignored",
        *("queue", "update", "new.pauses := 0; return new;"),
        "pause_of_retries_keeps_them_waiting",
    ),
    TriggerBug(
        "the streak of a tenant is forgotten",
        *("queue", "update", "new.in_a_row := 0; return new;"),
        "streak_counts_across_sessions",
    ),
    TriggerBug("events are lost", *("event_other", "insert", "return null;"), "events_are_stored_with_their_change"),
    TriggerBug(
        "the counters of a lane drift",
        *("lane", "update", "new.dead := greatest(old.dead, new.dead); return new;"),
        "tally_follows_every_move",
    ),
    TriggerBug(
        "keys are forgotten with their job",
        *("unique_key", "insert", "new.expires_at := 0; return new;"),
        "key_outlives_its_job_for_its_time",
    ),
    PatchBug("the fencing token is not compared", _ignore_fencing_token, "refused_change_frees_no_slot"),
    PatchBug(
        "the version of a waiting job is not compared",
        _ignore_version_of_waiting_jobs,
        "change_with_a_future_version_is_refused",
    ),
    PatchBug("a stale call is served", _serve_stale_calls, "claim_with_a_lower_number_is_refused_whole"),
    PatchBug("jobs run after their deadline", _run_expired_jobs, "job_past_its_deadline_dies_instead"),
    PatchBug("due jobs are promoted early", _promote_early, "due_job_is_taken_exactly_when_it_is_due"),
    PatchBug("recovery takes from the living", _recover_from_the_living, "session_lives_until_its_death_is_declared"),
    PatchBug(
        "another change of the same version passes for a repeat",
        _take_every_change_for_a_repeat,
        "another_change_of_the_same_version_is_refused",
    ),
    PatchBug(
        "a cancel request is lost when the attempt fails",
        _forget_cancel_requests,
        "job_that_was_asked_to_stop_never_waits_again",
    ),
    PatchBug("the attempt is not counted by its lease", _count_no_attempt, "attempt_is_counted_by_the_lease"),
    PatchBug(
        "the early read is trusted after the settlement has changed it",
        _trust_the_early_read,
        "job_returned_in_a_claim_can_be_taken_by_it",
    ),
)


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    schema = f"planted_{uuid4().hex[:12]}"
    yield f"{postgres_url}?schema={schema}"
    drop_schema(postgres_url, schema)


def plant(bug: TriggerBug, url: str) -> None:
    """Create the trigger of a bug in the schema of a URL."""
    diagnostics_for(url).migrate()
    server, _, schema = url.partition("?schema=")
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"set search_path = {schema}")
        admin.execute(f"create function planted() returns trigger language plpgsql as $$ begin {bug.body} end $$")
        admin.execute(
            f"create trigger planted before {bug.event} on {bug.table} for each row execute function planted()"
        )


def passes(url: str, name: str) -> bool:
    async def opened() -> Store:
        return open_store(url)

    return survives(opened, name)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug_is_found(bug: TriggerBug | PatchBug, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    match bug:
        case TriggerBug():
            plant(bug, url)
        case PatchBug():
            bug.patch(monkeypatch)
    assert not passes(url, bug.found_by)


@pytest.mark.parametrize("name", sorted({bug.found_by for bug in BUGS}))
def test_store_without_a_bug_passes(name: str, url: str) -> None:
    assert passes(url, name)
