"""Jobs of an outbox: why the store does not have them, or not yet."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reprieve.core.ids import is_id
from reprieve.errors import JobNotFound
from reprieve.stores.outbox import Outbox


@asynccontextmanager
async def explained(outbox: Outbox | None, job_id: str) -> AsyncIterator[None]:
    """Add to a `JobNotFound` whether the job is still in the outbox, or may have come through it."""
    try:
        yield
    except JobNotFound as error:
        if outbox is None or not is_id(job_id):
            raise
        if await outbox.holds(job_id):
            message = (
                f"job {job_id} is still in the outbox: no relay has brought it to the store yet; "
                "check that reprieve relay runs, and its log"
            )
        else:
            message = (
                f"{error}; or it came through the outbox with a key that another job has: then that job stands for both"
            )
        raise JobNotFound(message) from None
