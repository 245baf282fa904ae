"""Memory check: refuses new jobs when a server is nearly full."""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from reprieve.clock import ticks
from reprieve.errors import StoreError, StoreFull, StoreUnreachable
from reprieve.stores.redis.server_checks import server_of

WARN_SHARE, FULL_SHARE = 0.8, 0.9
"""Shares of maxmemory from which a warning is logged, and from which new jobs are refused."""

CHECK_SECONDS, CHECK_SHARE = 1.0, 0.02
"""Time, and share of maxmemory enqueued, from one check to the next."""

Infos = Callable[[], Awaitable[list[dict[str, Any]]]]
"""Returns what INFO says, of every primary."""

log = structlog.get_logger("reprieve")


class MemoryCheck:
    """Watches the memory of the servers that jobs are enqueued to."""

    def __init__(self) -> None:
        """Check at the first enqueue."""
        self._checked_at: float | None = None
        self._bytes = self._bytes_until_check = 0
        self._fullness = 0.0
        self._is_warned = False

    def has_room(self, size: int) -> bool:
        """Whether there is room for so many bytes by the last check; False: check, or the server is full."""
        is_due = self._checked_at is None or ticks() - self._checked_at >= CHECK_SECONDS
        if is_due or self._bytes + size >= self._bytes_until_check > 0 or self._fullness >= FULL_SHARE:
            return False
        self._bytes += size
        return True

    async def require_room(self, infos: Infos, size: int) -> None:
        """Raise `StoreFull` for jobs of so many bytes if a server is nearly full."""
        if not self.has_room(size):
            self._checked_at, self._bytes = ticks(), size
            try:
                servers = [server_of(info) for info in await infos()]
            except StoreUnreachable:
                raise
            except StoreError:
                return  # the enqueue itself raises a better error
            self._fullness = max((server.fullness for server in servers), default=0.0)
            self._bytes_until_check = int(CHECK_SHARE * min((server.maxmemory for server in servers), default=0))
            self._warn()
        if self._fullness >= FULL_SHARE:
            message = (
                f"the server has used {self._fullness:.0%} of its maxmemory, and takes no more jobs above "
                f"{FULL_SHARE:.0%}; raise maxmemory, or let workers drain it"
            )
            raise StoreFull(message)

    def _warn(self) -> None:
        if self._fullness >= WARN_SHARE and not self._is_warned:
            log.warning("the store is nearly full", used=f"{self._fullness:.0%}", refuses_at=f"{FULL_SHARE:.0%}")
        self._is_warned = self._fullness >= WARN_SHARE
