"""Reading every page of a search, for callers that need all of it and know that it is small."""

from reprieve.core.job import Job
from reprieve.stores.protocol import Filter, Store


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
