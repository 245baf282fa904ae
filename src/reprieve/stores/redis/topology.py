"""What a process knows of a store's servers and partitions; all of its connections share it."""

import math

from reprieve.stores.compatibility import Compatibility
from reprieve.stores.redis.address import Address
from reprieve.stores.redis.sentinels import Primary
from reprieve.stores.redis.server_checks import Durability
from reprieve.stores.redis.tags import tag_of

SCHEMA_VERSION = 1
"""The layout of the keys that this release knows; `calls.lua` has the same number."""

COMPATIBILITY = Compatibility(oldest_schema=1, oldest_release="0.1.0")
"""Which releases can use a store that this release has made. A migration that older releases cannot work with raises
it, in every partition before it changes anything else."""

CHECK_PARTITIONS_SECONDS = 1.0
"""How long a process relies on the number of partitions that it knows."""

CHECK_SERVER_SECONDS = 10.0
"""How long a process relies on a server's settings: it may have been restarted or replaced unnoticed."""


class Topology:
    """The servers and partitions of one store."""

    def __init__(self, address: Address, durability: Durability = "full") -> None:
        """Take where the servers are; nothing is known of them yet."""
        self.address = address
        self.durability = durability
        self.partitions = address.partitions or 1
        """How many partitions there are."""
        self.partitions_until = -math.inf
        """Until when that number is relied on, in seconds of the monotonic clock."""
        self.is_admitted = False
        """Whether all servers were checked once."""
        self.primary: Primary | None = None
        """The primary that Sentinels have named, if there are any."""
        self._checked_at: dict[str, float] = {}

    def tag(self, partition: int) -> str:
        """Return the hash tag of a partition."""
        return tag_of(self.address.prefix, partition)

    def add_partitions(self, partitions: int, now: float) -> None:
        """Note how many partitions there are; the number only grows."""
        self.partitions = max(self.partitions, partitions)
        self.partitions_until = now + CHECK_PARTITIONS_SECONDS

    def is_checked(self, server: str, now: float) -> bool:
        """Whether a server was checked, and found safe, a short while ago."""
        return now - self._checked_at.get(server, -math.inf) < CHECK_SERVER_SECONDS

    def note_checked(self, server: str, now: float) -> None:
        """Note that a server was found safe."""
        self._checked_at[server] = now

    def forget_checks(self) -> None:
        """Check every server again before its next call."""
        self._checked_at.clear()
