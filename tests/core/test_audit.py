"""Audit entries: who did what, and that no move of a person goes without one."""

import pytest
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.audit import MAX_FACTS_BYTES, Audit, Automatic, checked_facts, facts_of_job
from reprieve.core.change import Change, Request, is_audited
from reprieve.core.job import CancelRequest, Cause, Job
from reprieve.core.move import Cancel, Dead, ManualRetry, Retry, Start, Succeed
from reprieve.errors import InvalidName, ValidationError

NOW = 1_760_000_000_000
CAUSE = Cause(reason="down", code="421", kind="transient")
WAITING = Job(id="j", task="send", tenant="acme", queue="mail", created_at=NOW, due_at=NOW, max_attempts=3)
RUNNING = change.lease(WAITING, "w1", NOW).job
DEAD = change.settle(RUNNING, Dead(death="exhausted", cause=CAUSE, charged=True), NOW).job
ANA = Request(by="ana", reason="the provider is back", request_id="req-1", operation="op-2", force=True)


def retry() -> Change:
    return change.retry(DEAD, ANA, NOW + 5, 1_800)


def test_manual_retry_tells_the_job_before_and_after() -> None:
    entry = retry().audit
    assert entry is not None
    assert (entry.actor, entry.action, entry.reason, entry.at) == ("ana", "retry", "the provider is back", NOW + 5)
    assert (entry.kind, entry.name, entry.tenant, entry.queue) == ("job", "j", "acme", "mail")
    assert (entry.request_id, entry.operation) == ("req-1", "op-2")
    assert entry.before == {"state": "dead", "due_at": NOW, "granted": 0, "death": "exhausted"}
    assert entry.after == {"state": "waiting", "due_at": NOW + 5, "granted": 0}


def test_cancel_of_a_waiting_job_is_audited() -> None:
    made = change.cancel(WAITING, ANA, NOW)
    assert made.audit is not None
    assert (made.audit.action, made.audit.before["state"], made.audit.after["state"]) == (
        "cancel",
        "waiting",
        "cancelled",
    )
    assert is_audited(made)


def test_retry_of_a_stuck_job_is_audited_although_it_ends_an_attempt() -> None:
    made = change.retry(RUNNING, ANA, NOW + 10_000_000, 1_800)
    assert made.session == "w1"
    assert made.audit is not None
    assert is_audited(made)


def test_cancel_that_follows_a_cancel_request_is_not_audited_again() -> None:
    asked = change.settle(RUNNING, Cancel(by="bea", reason="sent twice"), NOW)
    assert asked.audit is None
    assert is_audited(asked)
    failed = change.settle(RUNNING, Retry(due_at=NOW, cause=CAUSE, delay=1), NOW)
    given_up = change.give_up(failed, CancelRequest(by="bea", reason="sent twice"))
    assert given_up is not None
    assert given_up.audit is None


def test_a_move_without_a_request_is_audited_by_its_own_name_and_reason() -> None:
    made = change.make(DEAD, ManualRetry(by="ana", reason="again", due_at=NOW), NOW)
    assert made.audit is not None
    assert (made.audit.actor, made.audit.request_id, made.audit.operation) == ("ana", "", "")


@pytest.mark.parametrize("move", [Start(session="w1"), Cancel(reason="the task gave up")])
def test_what_no_person_did_has_no_entry(move: Start | Cancel) -> None:
    made = change.make(WAITING, move, NOW)
    assert made.audit is None
    assert is_audited(made)


def test_change_whose_entry_is_not_its_own_is_not_audited() -> None:
    made = retry()
    assert made.audit is not None
    assert is_audited(made)
    for wrong in (
        None,
        replace(made.audit, at=NOW),
        replace(made.audit, actor="eve"),
        replace(made.audit, reason="another"),
        replace(made.audit, name="k"),
        replace(made.audit, kind="queue"),
        replace(made.audit, tenant=""),
        replace(made.audit, queue=""),
    ):
        assert not is_audited(replace(made, audit=wrong))
    assert not is_audited(replace(change.settle(RUNNING, Succeed(), NOW), audit=made.audit))
    assert not is_audited(change.make(DEAD, ManualRetry(by="", reason="why", due_at=NOW), NOW))
    assert not is_audited(change.make(DEAD, ManualRetry(by="ana", reason="", due_at=NOW), NOW))


def test_audit_needs_a_name_and_a_reason() -> None:
    for by, reason in (("", "why"), ("ana", ""), ("\n ", "why"), ("ana", "\t")):
        with pytest.raises(ValidationError, match="name"):
            Audit(by=by, reason=reason)
    with pytest.raises(ValidationError, match="request_id"):
        Audit(by="ana", reason="why", request_id=7)  # type: ignore[arg-type]  # as a caller without types may
    assert Audit(by=" ana ", reason="why\nnot", request_id=" r\n1 ").request_id == "r 1"


def test_program_that_acts_by_itself_names_its_part() -> None:
    assert Automatic(by="gates").by == "gates"
    with pytest.raises(InvalidName):
        Automatic(by="")


def test_facts_are_flat_json_without_secrets() -> None:
    given = {"password": "hunter2", "url": "redis://:pw@host", "count": 3, "on": True, "no": None}
    hidden = {"password": "***", "url": "redis://:***@host", "count": 3, "on": True, "no": None}
    assert checked_facts(given, "before") == hidden
    wrongs: tuple[dict[str, object], ...] = (
        {"list": [1]},
        {"object": {}},
        {"bytes": b""},
        {"": 1},
        {"x" * 300: 1},
        {"bad": "\ud800"},
        {"large": 2**64},
        {"low": -(2**63) - 1},
    )
    for wrong in wrongs:
        with pytest.raises(ValidationError):
            checked_facts(wrong, "after")


def test_facts_that_are_too_large_are_refused() -> None:
    with pytest.raises(ValidationError, match="may have"):
        checked_facts({"text": "x" * 1_000_000}, "before")
    with pytest.raises(ValidationError, match="may have"):
        checked_facts({f"field{number}": "x" * 100 for number in range(100)}, "after")
    assert len(checked_facts({"text": "x" * (MAX_FACTS_BYTES - 100)}, "before")) == 1


def test_facts_of_a_job_that_is_not_dead_have_no_death() -> None:
    assert facts_of_job(WAITING) == {"state": "waiting", "due_at": NOW, "granted": 0}
