"""The suite notices: bugs are planted in copies of the SQLite store, and each must be found."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.stores.checked import checked
from tests.conformance.planting import Bug, Copy, copies, survives, survives_histories

SHARED = (
    "core/limits.py",
    "core/fairness/candidates.py",
    "core/fairness/choice.py",
    "core/fairness/updates.py",
    "stores/record.py",
    "stores/sql/candidates.py",
    "stores/sql/claim.py",
)
"""What the store shares with others: copied with it, so that bugs can be planted there."""

HISTORIES = 150
"""How many are played. Those below are found by one of the first ten, whatever the seed."""

FOUND_BY_HISTORIES = {
    "a leased job stays on its lane",
    "recovery takes from the living",
    "limits of tasks, dependencies and groups leak a slot",
    "due jobs are promoted early",
    "events are lost",
    "a repeated claim leases again",
}
"""Bugs that the state machine finds without being told where to look. What it finds only now and then has a check."""

BUGS = (
    Bug(
        "retried jobs stay in the counts of their causes",
        "settle.py",
        "            batch.causes.remove_dead(IndexedFields(*fields).failure_names())\n",
        "            pass\n",
        "retried_and_revived_jobs_leave_their_causes",
    ),
    Bug(
        "the last death of a group is not looked up again",
        "sql/causes.sql",
        "update reprieve_cause as cause set count = count - v.column4, last_at = coalesce(case kind",
        "update reprieve_cause as cause set count = count - v.column4, first_at = coalesce(case kind",
        "order_of_causes_is_that_of_the_jobs_that_are_left",
    ),
    Bug(
        "the fencing token is not compared",
        "settle.py",
        "if leased is not None and leased.version == version:",
        "if leased is not None:",
        "refused_change_frees_no_slot",
    ),
    Bug(
        "a repeated claim counts for series again",
        "claim.py",
        "if request.changes or leased or request.series or request.starts:",
        "if request.changes or leased or request.starts:",
        "what_a_session_counts_is_added_once",
    ),
    Bug(
        "what was added to series is added again",
        "series.py",
        'tx.execute(sql["delete_deltas"], {"seq": last})',
        'tx.execute(sql["delete_deltas"], {"seq": 0})',
        "histograms_are_added",
    ),
    Bug(
        "the version of a waiting job is not compared",
        "settle.py",
        "if found is None or found.version != change.version:",
        "if found is None:",
        "change_with_a_future_version_is_refused",
    ),
    Bug(
        "the attempt is counted when it fails, not by its lease",
        "stores/record.py",
        "attempt=1,",
        "attempt=0,",
        "attempt_is_counted_by_the_lease",
    ),
    Bug(
        "a leased job stays on its lane",
        "sql/claim.sql",
        "cast(column3 as integer) from (values {values}));",
        "cast(column3 as integer) from (values {values}) where 0);",
        "leased_job_is_leased_once",
    ),
    Bug(
        "recovery takes from the living",
        "sql/sessions.sql",
        "where is_dead = 0 and expires_at < ?",
        "where is_dead = 0 and expires_at < ? + 60000",
        "recovery_answers_what_the_dead_held",
    ),
    Bug(
        "limits of tasks, dependencies and groups leak a slot",
        "write_batch.py",
        "for limiter in lane.limiters:\n                limiters[limiter] += count",
        "",
        "limit_leaks_no_slot_however_an_attempt_ends",
    ),
    Bug(
        "a tenant whose rate has room again is no candidate",
        "sql/claim.sql",
        "set blocked = 0, is_candidate = 1, reopens_at = null,",
        "set blocked = 0, reopens_at = null,",
        "rate_of_every_subject_has_room_again_in_time",
    ),
    Bug(
        "keys are forgotten",
        "enqueue.py",
        'run(tx, sql["acquire_keys"], list(acquired.values()))',
        "pass",
        "key_that_is_taken_answers_the_job_that_has_it",
    ),
    Bug(
        "due jobs are promoted early",
        "sql/claim.sql",
        "wait = 1 and due <= :schedule",
        "wait = 1 and due <= :schedule + 1000",
        "due_job_is_taken_exactly_when_it_is_due",
    ),
    Bug(
        "events are lost",
        "write_batch.py",
        'run(tx, sql["events"], self._events)',
        "pass",
        "events_are_stored_with_their_change",
    ),
    Bug(
        "permits are ignored",
        "core/limits.py",
        "for limit in (self.permits, self.max_running)",
        "for limit in (self.max_running,)",
        "ramp_lets_so_many_be_under_way",
    ),
    Bug(
        "a repeated claim forgets what was refused",
        "claim.py",
        "pack_last_claim(LastClaim(results, next_at))",
        'pack_last_claim(LastClaim(["already"] * len(results), next_at))',
        "repeated_claim_answers_its_changes_as_before",
    ),
    Bug(
        "a repeated claim leases again",
        "claim.py",
        "if request.number == session.last_claim:",
        "if request.number == -1:",
        "repeated_claim_answers_the_same_jobs",
    ),
    Bug(
        "a stale call is served",
        "stores/sql/claim.py",
        "if request.number < session.last_claim:",
        "if request.number < 0:",
        "claim_with_a_lower_number_is_refused_whole",
    ),
    Bug(
        "the dead come back to life",
        "sql/sessions.sql",
        "where name = :name and is_dead = 0",
        "where name = :name",
        "dead_session_stays_dead",
    ),
    Bug(
        "a cancel request fences the worker",
        "annotations.py",
        'tx.execute(sql["annotate"], (row, cancel, request.progress))',
        'tx.execute("delete from reprieve_lease as lease")',
        "cancel_request_does_not_fence_an_honest_worker",
    ),
    Bug(
        "a cancel request is lost when the attempt fails",
        "write_batch.py",
        "cancel = changes_of.give_up(change, request)",
        "cancel = None",
        "job_that_was_asked_to_stop_never_waits_again",
    ),
    Bug(
        "a failure that a cancel followed leaves no event",
        "write_batch.py",
        "self._add_event(row, cancel)",
        "self._events[-1:] = [(cancel.event.at, row, cancel.event.version, pack_event(cancel.event))]",
        "job_that_was_asked_to_stop_never_waits_again",
    ),
    Bug(
        "what a person did leaves no audit entry",
        "write_batch.py",
        'record_audit(SqliteTx(tx), statements("audit"), self._audit)',
        "",
        "manual_retry_has_its_audit_entry",
    ),
    Bug(
        "a write that is refused leaves its entry",
        "entry_write.py",
        'tx.execute("rollback to entry_write")',
        "",
        "write_with_a_change_that_does_not_apply_writes_nothing",
    ),
    Bug(
        "an entry that is made again begins to count anew",
        "sql/entries.sql",
        "update reprieve_counter set value = value + 1 where name = 'entry' returning value;",
        "select coalesce(max(version), 0) + 1 from reprieve_entry;",
        "entry_that_is_made_again_is_newer_than_it_ever_was",
    ),
    Bug(
        "jobs run after their deadline",
        "claim.py",
        "job.deadline_at <= self.now",
        "job.deadline_at <= 0",
        "job_past_its_deadline_dies_instead",
    ),
    Bug(
        "another change of the same version passes for a repeat",
        "settle.py",
        "if any(read_event(data) == change.event for (data,) in recorded):",
        "if recorded:",
        "another_change_of_the_same_version_is_refused",
    ),
    Bug(
        "a flood may be served for ever",
        "core/fairness/choice.py",
        "if self.state.in_a_row >= self.settings.max_in_a_row",
        "if self.state.in_a_row >= 1_000",
        "no_tenant_gets_more_than_three_in_a_row_while_another_is_below_its_share",
    ),
    Bug(
        "one tenant may take every slot",
        "core/fairness/choice.py",
        "return limits.running < self._ceiling or",
        "return True or",
        "no_tenant_takes_more_than_nine_tenths_while_others_wait",
    ),
    Bug(
        "jobs that are fetched ahead count as slots",
        "core/fairness/choice.py",
        "settings.max_share_of_slots)) + capacity.prefetch",
        "settings.max_share_of_slots))",
        "jobs_that_are_fetched_ahead_take_none_of_the_nine_tenths",
    ),
    Bug(
        "a heartbeat does not say which queues are served",
        "sql/sessions.sql",
        "queues = :queues, ",
        "",
        "only_sessions_that_serve_a_queue_count_for_its_nine_tenths",
    ),
    Bug(
        "weights are ignored",
        "core/fairness/candidates.py",
        "return int(running * ROUND / weight)",
        "return running * ROUND",
        "slots_are_shared_by_weight",
    ),
    Bug(
        "rates are not spent",
        "core/limits.py",
        "self.meter = spend(self.rate, self.meter, now, 1)",
        "pass",
        "no_window_sees_more_than_the_rate",
    ),
    Bug(
        "a pause of retries is ignored",
        "claim.py",
        '"retry": 0 if pauses & 2 else self.now',
        '"retry": self.now',
        "pause_of_retries_keeps_them_waiting",
    ),
    Bug(
        "a dead job is pruned in whatever version it is",
        "sql/prune.sql",
        "where job.id = ? and job.state = 1 and job.version = ?;",
        "where job.id = ? and job.state = 1 and ? is not null;",
        "dead_job_that_died_again_does_not_go_under_its_old_version",
    ),
    Bug(
        "a job that waits for a full limiter is forgotten when it has room again",
        "sql/settle.sql",
        "reopens_at = case when blocked_lanes > 0 then 0 else reopens_at end",
        "reopens_at = reopens_at",
        "permits_are_free_again_however_an_attempt_ends",
    ),
    Bug(
        "the counters of a lane drift",
        "settle.py",
        'batch.counts[lane.id]["dead" if found.state == DEAD else "cancelled"] -= 1',
        "pass",
        "tally_follows_every_move",
    ),
    Bug(
        "jobs of excluded tasks are leased",
        "candidates.py",
        "skip_excluded(self._exclusion, lanes, self)",
        "pass",
        "claim_leases_no_job_of_an_excluded_task",
    ),
    Bug(
        "a tenant whose jobs a session excludes is forgotten",
        "candidates.py",
        "has_more, has_excluded = open_lanes.has_more, open_lanes.has_excluded",
        "has_more, has_excluded = open_lanes.has_more, False",
        "excluded_jobs_stay_for_other_sessions",
    ),
    Bug(
        "a claim never looks beyond the first excluded tenants",
        "candidates.py",
        "if not skip:",
        "if True:",
        "many_excluded_tenants_hide_no_other",
    ),
    Bug(
        "the lane of a dead job is forgotten",
        "sql/forget_names.sql",
        " and lane.dead = 0",
        "",
        "name_of_a_job_that_is_kept_stays",
    ),
    Bug(
        "the lane of a running job is forgotten",
        "forget_names.py",
        "unused += [lane for lane in unclear if lane.id not in leased]",
        "unused += unclear",
        "lane_of_a_running_job_stays",
    ),
    Bug(
        "a weight is forgotten",
        "sql/forget_names.sql",
        " and weight = 1 and kept_until",
        " and kept_until",
        "limits_weights_and_pauses_survive_a_prune",
    ),
    Bug(
        "a name that is free of the default is forgotten",
        "sql/forget_names.sql",
        "where lanes = 0 and own = 0 and subject <> 'queue'",
        "where lanes = 0 and subject <> 'queue'",
        "name_stays_that_is_free_of_the_default",
    ),
    Bug(
        "what a default's rate has granted is forgotten",
        "sql/forget_names.sql",
        "weight = 1 and kept_until <= :now",
        "weight = 1",
        "what_the_rate_of_a_default_has_granted_outlives_a_prune",
    ),
    Bug(
        "a limiter of a pair does not count the lanes that were there before",
        "update_limits.py",
        'tx.execute(sql["count_lanes_of_pairs"], listed)',
        "",
        "limit_of_a_pair_holds_again_after_a_prune",
    ),
    Bug(
        "an expired job behind others of its millisecond is not found",
        "expire.py",
        "if first_at == last_at and not expired:",
        "if False:",
        "job_expires_behind_others_of_the_same_moment",
    ),
    Bug(
        "expiry takes a call that ends no job for the last one",
        "expire.py",
        "has_more=is_due(tx, now)",
        "has_more=bool(found)",
        "lanes_without_jobs_do_not_hold_up_the_expiry_of_others",
    ),
)


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    with copies(tmp_path, "sqlite", lambda planted: checked(planted.SqliteStore(None)), SHARED) as made:
        yield made


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug_is_found(bug: Bug, copy: Copy) -> None:
    assert not survives(copy(bug), bug.found_by)


@pytest.mark.parametrize("name", sorted(FOUND_BY_HISTORIES))
def test_planted_bug_is_found_by_histories(name: str, copy: Copy) -> None:
    (bug,) = [bug for bug in BUGS if bug.name == name]
    assert not survives_histories(copy(bug), HISTORIES)


def test_copy_without_a_bug_survives(copy: Copy) -> None:
    sound = copy(None)
    for name in {bug.found_by for bug in BUGS}:
        assert survives(sound, name), name
    assert survives_histories(sound, HISTORIES)
