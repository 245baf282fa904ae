# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of the audit log of limits and entries: people leave entries, programs that act by themselves leave none."""

from typing import Any

from msgspec.structs import replace

from reprieve.core.audit import Audit, Facts
from reprieve.core.rate import Rate
from reprieve.errors import ValidationError
from reprieve.stores.protocol import EntryFacts, EntryWrite, LimitUpdate, Store
from reprieve.testing.conformance.auditing import all_audit
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error
from reprieve.testing.conformance.stage import PROGRAM, SECOND, START

PERSON = Audit(by="ana", reason="the provider asked for it", request_id="req-9", operation="op-4")


async def check_limits_of_a_person_have_audit_entries(store: Store) -> None:
    ses = LimitUpdate(subject="dependency", name="ses", max_running=5)
    updates: tuple[tuple[LimitUpdate, str, dict[str, Any], dict[str, Any]], ...] = (
        (ses, "limit", {"max_running": "default"}, {"max_running": 5}),
        (replace(ses, max_running=None), "limit", {"max_running": 5}, {"max_running": "none"}),
        (replace(ses, max_running="default"), "limit", {"max_running": "none"}, {"max_running": "default"}),
        (
            LimitUpdate(subject="dependency", name="ses", rate=Rate(count=7, window=60.0)),
            "limit",
            {"rate": "default"},
            {"rate": "7/60s"},
        ),
        (
            LimitUpdate(subject="dependency", name="ses", rate=Rate(count=7, window=0.5)),
            "limit",
            {"rate": "7/60s"},
            {"rate": "7/0.5s"},
        ),
        (LimitUpdate(subject="dependency", name="ses", permits=0), "hold", {"permits": "default"}, {"permits": 0}),
        (
            LimitUpdate(subject="dependency", name="ses", permits="default"),
            "release",
            {"permits": 0},
            {"permits": "default"},
        ),
        (
            LimitUpdate(subject="tenant", name="acme", queue="mail", weight=2.5),
            "weight",
            {"weight": 1.0},
            {"weight": 2.5},
        ),
        (
            LimitUpdate(subject="queue", name="mail", pauses=("schedule", "retry")),
            "pause",
            {"pauses": "default"},
            {"pauses": "retry, schedule"},
        ),
        (
            LimitUpdate(subject="queue", name="mail", pauses=()),
            "resume",
            {"pauses": "retry, schedule"},
            {"pauses": "none"},
        ),
        (LimitUpdate(subject="tenant", name=None, permits=3), "limit", {"permits": "default"}, {"permits": 3}),
        (
            LimitUpdate(subject="tenant_dependency", name="acme", dependency="ses", permits=4, max_running=9),
            "limit",
            {"permits": "default", "max_running": "default"},
            {"permits": 4, "max_running": 9},
        ),
    )
    for number, (update, action, before, after) in enumerate(updates, start=1):
        at = START + number * SECOND
        for _ in range(2):
            # A repeat changes nothing, and leaves no second entry.
            await store.update_limits([update], at, PERSON)
        log = await all_audit(store, is_newest_first=False)
        expect_equal(len(log), number, f"audit entries after {update}")
        entry = log[-1]
        expect_equal((entry.action, entry.before, entry.after), (action, before, after), f"the entry of {update}")
        expect_equal((entry.actor, entry.reason, entry.at), (PERSON.by, PERSON.reason, at), "who, why and when")
        expect_equal((entry.request_id, entry.operation), ("req-9", "op-4"), "in what")
        expect_equal(entry.kind, update.subject, "the kind of the subject")
    expect_equal(len(await all_audit(store, kind="dependency", name="ses")), 7, "entries of a dependency")
    expect_equal([entry.queue for entry in await all_audit(store, kind="tenant", name="acme")], ["mail"], "the queue")
    expect_equal(len(await all_audit(store, scope="acme")), 2, "entries that the tenant may see")


async def check_updates_in_one_call_have_an_entry_each(store: Store) -> None:
    first = LimitUpdate(subject="task", name="send", max_running=1)
    await store.update_limits([first, replace(first, max_running=2), replace(first, name="bill")], START, PERSON)
    found = {(entry.name, entry.before["max_running"], entry.after["max_running"]) for entry in await all_audit(store)}
    expect_equal(found, {("bill", "default", 1), ("send", "default", 1), ("send", 1, 2)}, "what changed, one by one")


async def check_program_that_acts_by_itself_leaves_no_audit_entry(store: Store) -> None:
    hold = LimitUpdate(subject="dependency", name="ses", permits=0)
    await store.update_limits([hold], START, PROGRAM)
    write = EntryWrite(key="gate:ses", version=0, value=b"held", updates=(replace(hold, permits=2),))
    expect((await store.compare_and_set(write, START, PROGRAM)).entry is not None, "the entry is set")
    expect_equal(await all_audit(store), [], "the audit log")
    for stranger in (None, "ana", {"by": "ana"}):
        who: Any = stranger
        await expect_error(store.update_limits([hold], START, who), ValidationError, f"limits by {stranger!r}")
        await expect_error(store.compare_and_set(write, START, who), ValidationError, f"an entry by {stranger!r}")


async def check_entry_of_a_person_has_its_audit_entries(store: Store) -> None:
    told = EntryFacts(action="hold", tenant="acme", before={"mode": "open", "token": "s3cret"}, after={"mode": "held"})
    hold = LimitUpdate(subject="dependency", name="ses", permits=0)
    write = EntryWrite(key="gate:ses", version=0, value=b"held", updates=(hold,), told=told)
    entry = (await store.compare_and_set(write, START, PERSON)).entry
    expect(entry is not None, "the entry is set")
    (of_entry,) = await all_audit(store, kind="entry", name="gate:ses")
    expect_equal((of_entry.action, of_entry.tenant, of_entry.actor), ("hold", "acme", "ana"), "what, whose and who")
    expect_equal(of_entry.before, {"version": 0, "mode": "open", "token": "***"}, "the entry before")
    expect_equal(of_entry.after, {"mode": "held"}, "the entry after")
    (of_limit,) = await all_audit(store, kind="dependency", name="ses")
    expect_equal((of_limit.action, of_limit.after), ("hold", {"permits": 0}), "the limit that changed with it")
    lost = await store.compare_and_set(replace(write, write_id=7), START, PERSON)
    expect_equal((lost.entry, len(await all_audit(store))), (None, 2), "a write that lost, and the audit log")


async def check_facts_of_an_entry_are_kept_as_they_are(store: Store) -> None:
    facts: Facts = {
        "nothing": None,
        "text": "",
        "large": 2**60 + 1,
        "larger": 2**64 - 1,
        "negative": -(2**62) - 1,
        "fraction": 0.1,
        "whole": 2.0,
        "tiny": 5e-324,
        "yes": True,
        "no": False,
        "größe": "ß",
    }
    told = EntryFacts(before=facts, after={"nothing": None})
    write = EntryWrite(key="settings", version=0, value=b"one", told=told)
    await store.compare_and_set(write, START, PERSON)
    (entry,) = await all_audit(store, kind="entry", name="settings")
    expect_equal(entry.before, {"version": 0} | facts, "the facts before")
    kinds = {name: type(value).__name__ for name, value in facts.items()}
    found = {name: type(entry.before[name]).__name__ for name in facts}
    expect_equal(found, kinds, "the types of the facts before")
    expect_equal(entry.after, {"nothing": None}, "the facts after")


async def check_repeated_write_of_an_entry_is_recognised(store: Store) -> None:
    write = EntryWrite(key="tick", version=0, value=b"one")
    first = (await store.compare_and_set(write, START, PERSON)).entry
    expect_equal((await store.compare_and_set(write, START, PERSON)).entry, first, "the result of a repeat")
    version = 0 if first is None else first.version
    second = EntryWrite(key="tick", version=version, value=b"two")
    newer = (await store.compare_and_set(second, START, PERSON)).entry
    expect_equal((await store.compare_and_set(write, START, PERSON)).entry, first, "a repeat that comes late")
    expect_equal(await store.entry("tick"), newer, "the entry after a late repeat")
    delete = EntryWrite(key="tick", version=0 if newer is None else newer.version, value=None)
    gone = (await store.compare_and_set(delete, START, PERSON)).entry
    expect(gone is not None, "the entry is deleted")
    expect_equal((await store.compare_and_set(delete, START, PERSON)).entry, gone, "the result of a repeated delete")
    expect_equal((await store.compare_and_set(write, START, PERSON)).entry, first, "a repeat after the delete")
    expect_equal(await store.entry("tick"), None, "the entry after a repeat that came after the delete")
    expect_equal(len(await all_audit(store, kind="entry")), 3, "audit entries of three writes")


async def check_facts_of_an_entry_that_cannot_be_kept_are_refused(store: Store) -> None:
    wrong: tuple[Any, ...] = (
        EntryFacts(before={"text": "x" * 5_000}),
        EntryFacts(after={"text": "x" * 1_000_000}),
        EntryFacts(after={"list": [1]}),  # type: ignore[dict-item]  # what is tested
        EntryFacts(action="invent"),  # type: ignore[arg-type]  # what is tested
        EntryFacts(tenant="a\0b"),
    )
    for told in wrong:
        write = EntryWrite(key="tick", version=0, value=b"one", told=told)
        await expect_error(store.compare_and_set(write, START, PERSON), ValidationError, f"facts {str(told)[:60]}")
    expect_equal((await store.entry("tick"), await all_audit(store)), (None, []), "the entry and the audit log")
