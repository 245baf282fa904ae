"""Dramatiq, run by its own command, with no more middleware than retries need."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage, Retries

from benchmarks.flow.producer import SyncProducer
from benchmarks.flow.track import PAYLOAD, URL
from benchmarks.flow.work import MOST_ATTEMPTS, RETRY_AFTER, TASKS
from benchmarks.flow.work import work as attempt

dramatiq.set_broker(RedisBroker(url=os.environ[URL], middleware=[Retries(max_retries=MOST_ATTEMPTS), CurrentMessage()]))


def _declare(name: str) -> dramatiq.Actor:
    @dramatiq.actor(actor_name=name)
    def run(sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
        message = CurrentMessage.get_current_message()
        try:
            attempt(name, sent, message.message_id, is_first="retries" not in message.options)
        except ConnectionError as error:
            # Its own backoff is drawn by chance; this one is what we ask for.
            raise dramatiq.Retry(delay=round(RETRY_AFTER[name] * 1_000)) from error

    return run


TASK = {name: _declare(name) for name in TASKS}


class Producer(SyncProducer):
    """Sends as its documents say. It knows no tenants, and no bulk: a group sends one by one."""

    packages = ("dramatiq", "redis", "hiredis")

    def send(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - it knows none
        """Enqueue one job."""
        TASK[task].send(sent, PAYLOAD)
