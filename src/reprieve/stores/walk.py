"""Walking through every page of an answer, for those who want all of it and know that it is not much."""

from reprieve.core.job import Job
from reprieve.stores.protocol import Filter, Store


async def find_all(store: Store, wanted: Filter, now: int) -> list[Job]:
    """Return all the jobs that are meant, as they are."""
    jobs: list[Job] = []
    cursor = ""
    while True:
        page = await store.find(wanted, now, cursor)
        jobs += page.jobs
        if not page.cursor:
            return jobs
        cursor = page.cursor
