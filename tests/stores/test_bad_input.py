"""What is no value of a field is refused with a `ValidationError` that names it, and nothing is written."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields, replace

from reprieve.core.audit import Audit
from reprieve.core.record import Record
from reprieve.errors import ValidationError
from reprieve.stores.open import open_store
from reprieve.stores.protocol import (
    AuditFilter,
    CauseRequest,
    EntryFacts,
    EntryWrite,
    EventQuery,
    Filter,
    Retention,
    SeriesRequest,
    Store,
)
from reprieve.testing.conformance.stage import HOUR, START

Call = Callable[[Store, Any], Coroutine[Any, Any, object]]

PERSON = Audit(by="ana", reason="the provider asked for it")
WRITE = EntryWrite(key="settings", version=0, value=b"one")
NUMBERS = (5, -1, 10**30, 0.5, float("nan"))
WRONG: tuple[object, ...] = (*NUMBERS, "no such word", "a\0b", b"bytes", (5,), ({},), {"a": 10**30}, object())
"""Values of many kinds: each field takes a few of them at most."""

RECORDS: tuple[tuple[Record, Call], ...] = (
    (Filter(), lambda store, one: store.find(one, START)),
    (Filter(), lambda store, one: store.tally("queue", one, START)),
    (EventQuery(), lambda store, one: store.read_events(one)),
    (CauseRequest(), lambda store, one: store.causes(one, START)),
    (
        SeriesRequest(subject="queue", names=("default",), since_at=START, until_at=START + HOUR),
        lambda store, one: store.series(one, START),
    ),
    (AuditFilter(), lambda store, one: store.audit_log(one)),
    (WRITE, lambda store, one: store.compare_and_set(one, START, PERSON)),
    (EntryFacts(), lambda store, one: store.compare_and_set(replace(WRITE, told=one), START, PERSON)),
    (Retention(now=START), lambda store, one: store.prune(one)),
)
CURSORS: tuple[Call, ...] = (
    lambda store, cursor: store.find(Filter(), START, cursor),
    lambda store, cursor: store.causes(CauseRequest(cursor=cursor), START),
    lambda store, cursor: store.limit_states("queue", cursor=cursor),
    lambda store, cursor: store.entries(cursor=cursor),
    lambda store, cursor: store.audit_log(AuditFilter(), cursor),
)


@pytest.fixture
async def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'jobs.db'}")


@pytest.mark.parametrize(("good", "call"), RECORDS, ids=lambda part: type(part).__name__)
async def test_record_with_a_field_of_another_kind_is_refused(store: Store, good: Record, call: Call) -> None:
    """A few of the values are right for some fields: then the call answers. It never fails in another way."""
    refused: set[str] = set()
    for field in fields(good):
        for value in WRONG:
            try:
                await call(store, replace(good, **{field.name: value}))
            except ValidationError:
                refused.add(field.name)
            except Exception as error:  # noqa: BLE001 - what is tested
                pytest.fail(f"{type(good).__name__}({field.name}={value!r}): {error!r}")
    assert refused == {field.name for field in fields(good)}


@pytest.mark.parametrize("call", RECORDS, ids=lambda part: type(part[0]).__name__)
async def test_what_is_no_record_is_refused(store: Store, call: tuple[Record, Call]) -> None:
    wrong: tuple[object, ...] = (None, 5, "text", {})
    for value in wrong:
        with pytest.raises(ValidationError):
            await call[1](store, value)


@pytest.mark.parametrize("call", CURSORS)
async def test_what_is_no_cursor_is_refused(store: Store, call: Call) -> None:
    wrong: tuple[object, ...] = (None, 5, b"bytes", ("a",))
    for value in wrong:
        with pytest.raises(ValidationError):
            await call(store, value)


async def test_times_and_numbers_that_no_retention_has_are_refused(store: Store) -> None:
    times = ("succeeded_for", "cancelled_for", "events_for", "failures_for", "audit_for")
    for name in ("succeeded", "events", "failures", *times):
        with pytest.raises(ValidationError, match=name):
            await store.prune(replace(Retention(now=START), **{name: -1}))
