"""A process that acts as a person on a store, until it is killed: `python -m tests.stores.audited_writer URL NAME`."""

import asyncio
import sys
from itertools import count

from reprieve.core import change
from reprieve.core.audit import Audit
from reprieve.core.change import Request
from reprieve.core.job import Job
from reprieve.stores.open import open_store
from reprieve.stores.protocol import EntryWrite, LimitUpdate, Store

KEY = "schedule/audited"


async def act(store: Store, name: str, number: int) -> None:
    """Cancel a job and retry it, set a limit, and let the entry move on with a job."""
    await store.clock.tune()
    now = store.clock.now()
    person = Request(by=name, reason=f"action {number}", force=True)
    job = Job(id=store.new_id(now, "mail"), task="send", queue="mail", tenant="acme", created_at=now, due_at=now)
    await store.enqueue([job], now)
    cancel = change.cancel(job, person, now)
    await store.apply([cancel], now)
    await store.apply([change.retry(cancel.job, person, now, 1_800)], now)
    audit = Audit(by=name, reason=f"action {number}")
    await store.update_limits([LimitUpdate(subject="task", name=name, max_running=number + 1)], now, audit)
    entry = await store.entry(KEY)
    version, value = (0, 0) if entry is None else (entry.version, int(entry.value))
    other = Job(id=store.new_id(now, "tick", beside=KEY), task="tick", queue="tick", created_at=now, due_at=now)
    write = EntryWrite(key=KEY, version=version, value=b"%d" % (value + 1), jobs=(other,))
    await store.compare_and_set(write, now, audit)
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


async def main(url: str, name: str) -> None:
    """Act for ever."""
    store = open_store(url)
    for number in count():
        await act(store, name, number)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
