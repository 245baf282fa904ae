"""Sentinels: which server is the primary, as the latest failover has it."""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from reprieve.stores.redis.error_mapping import DRIVER_ERRORS, closed_as_broken

MAX_REPLY_SECONDS = 0.4
"""How long Sentinels may take to reply."""


class Primary(NamedTuple):
    """The primary of a service, as Sentinels know it."""

    host: str
    port: int
    epoch: int
    """Counts the failovers of the service."""

    @property
    def address(self) -> tuple[str, int]:
        """Where to connect to."""
        return self.host, self.port


class _ToPrimary(SentinelManagedConnection):
    """A connection that is not made to a server which was deposed meanwhile."""

    async def connect_to(self, address: tuple[str, int]) -> None:
        await super().connect_to(address)  # type: ignore[no-untyped-call]  # the driver's
        if self.connection_pool.sentinel_manager.primary not in (address, None):
            await self.disconnect()
            message = "another server became the primary while this connection was made"
            raise RedisConnectionError(message)


class _ToPrimaryWithTls(_ToPrimary, SentinelManagedSSLConnection):
    """The same with TLS."""


class Sentinels(Sentinel):
    """All Sentinels of a service, each of which is asked: one that is cut off still names the old primary."""

    primary: tuple[str, int] | None = None
    """The primary that new connections lead to; None: the one that the Sentinels name then."""

    def connect(self, service_name: str, *, tls: bool, **options: Any) -> Any:  # noqa: ANN401 - options of the driver, and its client
        """Return a client of the primary of a service."""
        connection = _ToPrimaryWithTls if tls else _ToPrimary
        return self.master_for(service_name, connection_class=connection, **options)

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the address of the primary."""
        if self.primary is not None:
            return self.primary
        found = choose(await self.ask(service_name), None, len(self.sentinels))
        if found is None:
            message = f"no Sentinel names the primary of {service_name!r}"
            raise MasterNotFoundError(message)
        return found.address

    async def ask(self, service_name: str) -> list[Primary]:
        """Return the primary as each Sentinel knows it; those that do not reply in time are left out."""
        asking = [asyncio.ensure_future(_ask(sentinel, service_name)) for sentinel in self.sentinels]
        try:
            done, _ = await asyncio.wait(asking, timeout=MAX_REPLY_SECONDS)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return [found for task in done if (found := task.result()) is not None]


async def _ask(sentinel: Any, service_name: str) -> Primary | None:  # noqa: ANN401 - a client
    # Both replies are of the same moment: a Sentinel carries out together what was sent together.
    pipeline = sentinel.pipeline(transaction=False)
    pipeline.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service_name)
    pipeline.execute_command("SENTINEL", "MASTER", service_name)
    try:
        with closed_as_broken():
            address, state = await pipeline.execute()
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
