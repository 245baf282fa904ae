"""Names of lanes as they are listed: in the order of their bytes, by queue or by tenant."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from reprieve.stores.protocol import Filter
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.loop_reader import LoopReader

MAX_LANES_READ: Final = 1_000
"""Lanes that one step reads."""


class LaneName(NamedTuple):
    """What the name of a lane says, and the name itself."""

    queue: str
    tenant: str
    task: str
    dependency: str
    group: str
    name: str


def parse_lane(name: str) -> LaneName:
    """Return what the name of a lane says."""
    queue, tenant, task, dependency, group, _ = name.split("\0")
    return LaneName(queue, tenant, task, dependency, group, name)


class LaneList:
    """The names of the lanes of a partition."""

    def __init__(self, connections: Connections | LoopReader, tag: str) -> None:
        """Take a reader, and the partition's hash tag."""
        self._connections = connections
        self._tag = tag

    def after(self, wanted: Filter, name: str) -> list[LaneName]:
        """Return the next lanes after one, by the narrowest list, in the order of their names."""
        if wanted.tenants:
            found = {lane for tenant in wanted.tenants for lane in self._of_tenant(tenant, name)}
        elif wanted.queues:
            found = {lane for queue in wanted.queues for lane in self._listed("lane_names", f"{queue}\0", name)}
        else:
            found = set(self._listed("lane_names", "", name))
        return [parse_lane(lane) for lane in sorted(found)[:MAX_LANES_READ]]

    def _of_tenant(self, tenant: str, name: str) -> Sequence[str]:
        prefix = f"{tenant}\0"
        found = self._listed("lane_names_by_tenant", prefix, prefix + name if name else "")
        return [lane.removeprefix(prefix) for lane in found]

    def _listed(self, key: str, prefix: str, after: str) -> Sequence[str]:
        """Return members of a list that begin with a prefix, after one of them."""
        low = b"-" if not prefix else b"[" + prefix.encode()
        if after.encode() > prefix.encode():
            low = b"(" + after.encode()
        # No name has the byte after NUL, so all that begin with `prefix` come before it.
        high = b"+" if not prefix else b"(" + prefix[:-1].encode() + b"\1"
        arguments = (low, high, "LIMIT", 0, MAX_LANES_READ)
        found = self._connections.command("ZRANGEBYLEX", f"{self._tag}:{key}", *arguments)
        return [name.decode() for name in found]
