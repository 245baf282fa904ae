"""Sentinels: which server is the primary, as the latest failover has it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from reprieve.stores.redis.address import HostPort
from reprieve.stores.redis.error_mapping import DRIVER_ERRORS, closed_as_broken
from reprieve.stores.redis.node import Node

MAX_REPLY_SECONDS = 0.4
"""How long Sentinels may take to reply."""


class Primary(NamedTuple):
    """The primary of a service, as Sentinels know it."""

    host: str
    port: int
    epoch: int
    """Counts the failovers of the service."""

    @property
    def address(self) -> HostPort:
        """Where to connect to."""
        return self.host, self.port


async def ask(sentinels: Sequence[Node], service: str) -> list[Primary]:
    """Return the primary as each Sentinel knows it; those that do not reply in time are left out.

    All of them are asked: one that is cut off still names the old primary.
    """
    asking = [asyncio.ensure_future(_ask(sentinel, service)) for sentinel in sentinels]
    try:
        done, _ = await asyncio.wait(asking, timeout=MAX_REPLY_SECONDS)
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    return [found for task in done if (found := task.result()) is not None]


async def _ask(sentinel: Node, service: str) -> Primary | None:
    # Both replies are of the same moment: a Sentinel carries out together what was sent together.
    try:
        with closed_as_broken():
            address, state = await sentinel.execute_together(
                ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service), ("SENTINEL", "MASTER", service)
            )
    except DRIVER_ERRORS:
        return None
    if not address:
        return None
    facts = dict(zip(state[::2], state[1::2], strict=True))
    return Primary(address[0].decode(), int(address[1]), int(facts[b"config-epoch"]))


def choose(replies: list[Primary], known: Primary | None, sentinels: int) -> Primary | None:
    """Return the primary of the latest failover that the replies tell of; `known` if they tell of earlier ones only.

    Most Sentinels of the service are right all the same: they may have been set up anew, and count failovers from zero.
    """
    if not replies:
        return known
    latest = max(reply.epoch for reply in replies)
    ((found, count),) = Counter(reply for reply in replies if reply.epoch == latest).most_common(1)
    is_current = known is None or latest >= known.epoch or count > sentinels // 2
    return found if is_current else known
