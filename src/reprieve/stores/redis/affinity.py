"""Partition affinity: which partition a session claims from first."""

from typing import Final

from reprieve.rng import bits

MAX_STAY_MS: Final = 20
"""How long a session stays with one partition."""

MAX_ROUND_MS: Final = 100
"""How long a session may take until it has come to all partitions."""


class PartitionAffinity:
    """The partition that a session claims from first, and alone, while claims are filled.

    One large call costs the servers less than several small ones. The session moves to the next partition after a
    moment, so all are served in turn. As soon as a claim is not filled, or the session claims rarely, it claims from
    all partitions at once again, so none has to wait for its turn.
    """

    def __init__(self, partitions: int) -> None:
        """Begin with any partition: sessions woken by the same notification should not all claim from the same one."""
        self._partitions = partitions
        self._number = bits(16) % partitions
        self._until: int | None = None
        """When to move on; None: claim from all partitions."""

    def first(self, now: int) -> int | None:
        """Return the partition to claim from first; None: from all at once."""
        if self._until is None or now >= self._until + MAX_STAY_MS:
            self._until = None
            return None
        if now >= self._until:
            self._move(now)
        return self._number

    def note(self, now: int, *, is_filled: bool, is_exhausted: bool) -> None:
        """Note whether the claim was filled, and whether the first partition had too little."""
        if not is_filled:
            self._until = None
        elif self._until is None or is_exhausted:
            self._move(now)

    def _move(self, now: int) -> None:
        self._number = (self._number + 1) % self._partitions
        self._until = now + min(MAX_STAY_MS, MAX_ROUND_MS // self._partitions)
