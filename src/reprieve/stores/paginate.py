"""Reading every page, for callers that need all of it and know that it is small."""

from reprieve.core.events import Event
from reprieve.core.job import Job
from reprieve.stores.protocol import Entry, Filter, LimitState, Store, Subject


async def find_all(store: Store, wanted: Filter, now: int) -> list[Job]:
    """Return all jobs that match a filter."""
    jobs: list[Job] = []
    cursor = ""
    while True:
        page = await store.find(wanted, now, cursor)
        jobs += page.jobs
        if not page.cursor:
            return jobs
        cursor = page.cursor


async def all_entries(store: Store, prefix: str = "", now: int = 0) -> list[Entry]:
    """Return all entries whose key begins with a prefix."""
    entries: list[Entry] = []
    cursor = ""
    while True:
        page = await store.entries(prefix, now, cursor)
        entries += page.entries
        if not page.cursor:
            return entries
        cursor = page.cursor


async def all_limit_states(store: Store, subject: Subject, queue: str = "") -> list[LimitState]:
    """Return all limit states of a subject."""
    states: list[LimitState] = []
    cursor = ""
    while True:
        page = await store.limit_states(subject, queue, cursor=cursor)
        states += page.states
        if not page.cursor:
            return states
        cursor = page.cursor


async def all_events(store: Store, job_id: str) -> list[Event]:
    """Return all events of a job that are kept, the oldest first."""
    events: list[Event] = []
    position = 0
    while page := await store.events(after=position, job_id=job_id):
        events += [event for _, event in page]
        position = page[-1][0]
    return events
