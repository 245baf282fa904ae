# ruff: noqa: D103, PLR2004 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of entries that expire, and of pages of entries."""

from reprieve.errors import InvalidCursor, ValidationError
from reprieve.stores.paginate import all_entries
from reprieve.stores.protocol import Entry, EntryWrite, Retention, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error
from reprieve.testing.conformance.stage import HOUR, PROGRAM, SECOND, START, set_entry


async def set_until(store: Store, key: str, expires_at: int, version: int = 0, at: int = START) -> Entry | None:
    """Set an entry that expires."""
    write = EntryWrite(key=key, version=version, value=key.encode(), expires_at=expires_at)
    return (await store.compare_and_set(write, at, PROGRAM)).entry


async def check_entries_are_read_in_pages(store: Store) -> None:
    keys = [f"a/{number:02}" for number in range(25)]
    for key in (*reversed(keys), "a", "b/1", "B/2", "a0"):
        await set_entry(store, key, 0, key.encode())
    found: list[str] = []
    cursor = ""
    for _ in range(100):
        page = await store.entries("a/", START, cursor, 7)
        expect(len(page.entries) <= 7, f"a page of {len(page.entries)} entries")
        found += (entry.key for entry in page.entries)
        cursor = page.cursor
        if not cursor:
            break
    expect_equal(found, keys, "the keys of all pages")
    expect_equal(len(await all_entries(store)), 29, "entries in all")
    await expect_error(store.entries("b/", START, "a/03"), InvalidCursor, "the cursor of another prefix")
    for limit in (0, -1):
        await expect_error(store.entries("a/", START, "", limit), ValidationError, f"a limit of {limit}")


async def check_entry_that_has_expired_is_gone(store: Store) -> None:
    made = await set_until(store, "lock", START + HOUR)
    await set_until(store, "lock/2", START + 2 * HOUR)
    expect_equal(await store.entry("lock", START + HOUR - 1), made, "the entry before its time")
    expect_equal(await store.entry("lock", START + HOUR), None, "the entry at its time")
    left = [entry.key for entry in await all_entries(store, "lock", START + HOUR)]
    expect_equal(left, ["lock/2"], "the entries at that time")
    version = 0 if made is None else made.version
    late = START + HOUR
    expect_equal(await set_until(store, "lock", late + HOUR, version, late), None, "a write with the old version")
    again = await set_until(store, "lock", late + HOUR, 0, late)
    expect(again is not None and again.version > version, "a new entry of the key has a larger version")
    expect_equal(await store.entry("lock", late), again, "the new entry")


async def check_prune_deletes_entries_that_have_expired(store: Store) -> None:
    for number in range(130):
        await set_until(store, f"lock/{number:03}", START + number * SECOND)
    await set_entry(store, "lock/forever", 0, b"x")
    cursor = (await store.entries_since("", "lock/")).cursor
    gone = 0
    for _ in range(100):
        pruned = await store.prune(Retention(now=START + 119 * SECOND))
        expect(pruned.entries <= 100, f"{pruned.entries} entries in one step")
        gone += pruned.entries
        if pruned.is_all:
            break
    expect_equal(gone, 120, "entries that a prune deletes")
    expect_equal(len(await all_entries(store, "lock/")), 11, "entries that stay")
    changes = await store.entries_since(cursor, "lock/")
    expect_equal((len(changes.entries), len(changes.deleted), changes.is_whole), (0, 120, False), "what changed")


async def check_entry_that_no_longer_expires_stays(store: Store) -> None:
    made = await set_until(store, "lock", START + SECOND)
    kept = await set_entry(store, "lock", 0 if made is None else made.version, b"kept")
    while not (await store.prune(Retention(now=START + HOUR))).is_all:
        pass
    expect_equal(await store.entry("lock", START + HOUR), kept, "an entry whose expiry was taken away")


async def check_changes_leave_out_what_has_expired(store: Store) -> None:
    await set_entry(store, "other", 0, b"x")
    cursor = (await store.entries_since()).cursor
    await set_until(store, "lock", START + SECOND)
    await set_until(store, "lease", START + HOUR)
    changes = await store.entries_since(cursor, "", START + SECOND)
    expect_equal([entry.key for entry in changes.entries], ["lease"], "entries that changed")
    expect_equal([deletion.key for deletion in changes.deleted], ["lock"], "entries that are gone")
    whole = await store.entries_since("", "", START + SECOND)
    expect_equal(sorted(entry.key for entry in whole.entries), ["lease", "other"], "all entries")


async def check_expiry_that_is_no_time_is_refused(store: Store) -> None:
    for expires_at in (-1, 1 << 60, 1.5):
        write = EntryWrite(key="lock", version=0, value=b"x", expires_at=expires_at)  # type: ignore[arg-type]  # what is tested
        await expect_error(store.compare_and_set(write, START, PROGRAM), ValidationError, f"expires_at={expires_at}")
