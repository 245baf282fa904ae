"""The suite notices on Redis too: bugs are planted in copies of the store, most of them in its scripts."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from reprieve.stores.checked import checked
from tests.conformance.planting import Bug, Copy, copies, survives, survives_histories

HISTORIES = 150
"""How many are played. Those below are found by one of the first ten, whatever the seed."""

FOUND_BY_HISTORIES = {"recovery takes from the living", "limiters leak a slot", "events are lost"}
"""Bugs that the state machine finds without being told where to look. What it finds only now and then has a check."""

BUGS = (
    Bug(
        "a repeated claim counts for series again",
        "lua/settle_and_claim.lua",
        "if session and (heads ~= '' or counted ~= '' or starts ~= '' or ids[1]) then",
        "if session and (heads ~= '' or starts ~= '' or ids[1]) then",
        "what_a_session_counts_is_added_once",
    ),
    Bug(
        "jobs that a claim expires are not counted for series",
        "lua/claim.lua",
        "  add_deltas(deltas)\n",
        "",
        "what_the_store_ends_itself_is_counted",
    ),
    Bug(
        "the fencing token is not compared",
        "lua/changes.lua",
        "if version == list.changes[number].expected then",
        "if version then",
        "refused_change_frees_no_slot",
    ),
    Bug(
        "the version of a waiting job is not compared",
        "lua/settle.lua",
        "if version ~= expected then\n    return\n",
        "if not version then\n    return\n",
        "change_with_a_future_version_is_refused",
    ),
    Bug(
        "a job that runs passes for one that waits",
        "lua/settle.lua",
        "or is_leased(settlement, id) then",
        "then",
        "change_with_a_stale_version_is_refused",
    ),
    Bug(
        "the attempt is not counted by its lease",
        "records.py",
        "_copy(record.lease_model(head.model, lease), raw",
        "_copy(replace(head.model, state='running', version=1, session=session, leased_at=at), raw",
        "attempt_is_counted_by_the_lease",
    ),
    Bug(
        "a cancelled job still counts as ready",
        "lua/leftovers.lua",
        "lane.ready = lane.ready - 1",
        "",
        "cancelled_ready_jobs_leave_their_lane",
    ),
    Bug(
        "a weight is forgotten",
        "lua/forget_names.lua",
        "tenant.weight ~= 1 or ",
        "",
        "limits_weights_and_pauses_survive_a_prune",
    ),
    Bug(
        "what a default's rate has granted is forgotten",
        "lua/forget_names.lua",
        " or limits.count and granted(limits, now) > 0",
        "",
        "what_the_rate_of_a_default_has_granted_outlives_a_prune",
    ),
    Bug(
        "a tenant with lanes is forgotten",
        "lua/forget_names.lua",
        "tenant.lane_count > 0 or ",
        "",
        "name_of_a_job_that_is_kept_stays",
    ),
    Bug(
        "recovery takes from the living",
        "lua/recover.lua",
        "'-inf', '(' .. ARGV[1])",
        "'-inf', '+inf')",
        "recovery_answers_what_the_dead_held",
    ),
    Bug(
        "limiters leak a slot",
        "lua/lanes.lua",
        "limiter.running = limiter.running - count",
        "limiter.running = limiter.running",
        "limit_leaks_no_slot_however_an_attempt_ends",
    ),
    Bug(
        "a job past its deadline keeps the slots of its limiters",
        "lua/claim.lua",
        "    if limiters[name] ~= choice.queue_limits then\n      give_back(limiters[name])",
        "    if false then\n      give_back(limiters[name])",
        "job_past_its_deadline_leaks_no_slot",
    ),
    Bug(
        "keys are forgotten",
        "lua/new_jobs.lua",
        "call_many('HSET', tag .. ':unique_keys', key_values)",
        "",
        "key_that_is_taken_answers_the_job_that_has_it",
    ),
    Bug(
        "due jobs are promoted late",
        "lua/waiting.lua",
        "call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES'",
        "call('ZRANGEBYSCORE', key, '-inf', now - 1000, 'WITHSCORES'",
        "due_job_is_taken_exactly_when_it_is_due",
    ),
    Bug(
        "events are lost",
        "lua/settle.lua",
        "  record_events(settlement.events, settlement.latest_event_at)",
        "",
        "events_are_stored_with_their_change",
    ),
    Bug(
        "permits are ignored",
        "lua/limits.lua",
        "room = limits.permits - limits.running",
        "room = 1000",
        "ramp_lets_so_many_be_under_way",
    ),
    Bug(
        "a repeated claim leases again",
        "lua/settle_and_claim.lua",
        "elseif number == session.number then",
        "elseif number == -1 then",
        "repeated_claim_answers_the_same_jobs",
    ),
    Bug(
        "a stale call is served",
        "lua/settle_and_claim.lua",
        "elseif number < session.number then",
        "elseif number < 0 then",
        "claim_with_a_lower_number_is_refused_whole",
    ),
    Bug(
        "the dead come back to life",
        "lua/heartbeat.lua",
        "if stored and stored.is_dead or not (stored or is_new) then",
        "if not (stored or is_new) then",
        "dead_session_stays_dead",
    ),
    Bug(
        "jobs run after their deadline",
        "lua/claim.lua",
        "if deadline > 0 and deadline <= choice.now then",
        "if deadline < 0 then",
        "job_past_its_deadline_dies_instead",
    ),
    Bug(
        "a flood may be served for ever",
        "lua/fairness.lua",
        "and choice.queue.in_a_row >= choice.settings.max_in_a_row",
        "and choice.queue.in_a_row >= 1000",
        "no_tenant_gets_more_than_three_in_a_row_while_another_is_below_its_share",
    ),
    Bug(
        "one tenant may take every slot",
        "lua/fairness.lua",
        "return tenant.running < choice.ceiling or is_alone(choice, tenant)",
        "return true",
        "no_tenant_takes_more_than_nine_tenths_while_others_wait",
    ),
    Bug(
        "weights are ignored",
        "lua/tenants.lua",
        "return floor(tenant.running * LOAD_UNIT / tenant.weight)",
        "return tenant.running * LOAD_UNIT",
        "slots_are_shared_by_weight",
    ),
    Bug(
        "rates are not spent",
        "lua/limits.lua",
        "    spend(limits, now, 1)",
        "",
        "no_window_sees_more_than_the_rate",
    ),
    Bug(
        "a cancel request is lost when the attempt fails",
        "lua/settle.lua",
        "change.yields and settlement.cancel_requests[change.id]",
        "false",
        "job_that_was_asked_to_stop_never_waits_again",
    ),
    Bug(
        "a dead job is pruned in whatever version it is",
        "lua/prune.lua",
        "if stored == version and (",
        "if (",
        "dead_job_that_died_again_does_not_go_under_its_old_version",
    ),
    Bug(
        "what a person did leaves no audit entry",
        "lua/settle.lua",
        "record_audit(settlement.audit)",
        "",
        "manual_retry_has_its_audit_entry",
    ),
    Bug(
        "a repeated write of an entry is made again",
        "lua/update_limits.lua",
        "if done then",
        "if false then",
        "entry_moves_on_and_enqueues_one_job",
    ),
    Bug(
        "an entry is written without the change that does not apply",
        "lua/update_limits.lua",
        "if not can then",
        "if false then",
        "write_with_a_change_that_does_not_apply_writes_nothing",
    ),
    Bug(
        "a repeated enqueue makes a job anew",
        "lua/new_jobs.lua",
        "    if record then\n      known[ids[number]] = true\n    end",
        "",
        "repeated_enqueue_leaves_a_job_that_moved_on_alone",
    ),
    Bug(
        "jobs of excluded tasks are leased",
        "lua/candidates.lua",
        "skip_excluded(exclusion, some, lists)",
        "",
        "claim_leases_no_job_of_an_excluded_task",
    ),
    Bug(
        "a claim that skips jobs does not look again",
        "lua/claim.lua",
        "note(exclusion and look_again_at(exclusion, now, choice.picks[1]))",
        "",
        "claim_that_skips_jobs_is_due_again_within_a_second_and_not_at_once",
    ),
    Bug(
        "a claim always looks at the first lanes of a tenant",
        "lua/exclusion.lua",
        "if parts <= 1 then",
        "if true then",
        "many_excluded_lanes_hide_no_other",
    ),
)


@pytest.fixture
def copy(tmp_path: Path, redis_url: str) -> Iterator[Copy]:
    with copies(
        tmp_path, "redis", lambda planted: checked(planted.RedisStore(f"{redis_url}?prefix={uuid4().hex}"))
    ) as made:
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
