"""Names of lanes as they are listed: in the order of their bytes, by queue or by tenant."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from reprieve.stores.places import LaneGroup
from reprieve.stores.protocol import Filter
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.loop_reader import LoopReader

MAX_LANES_READ: Final = 1_000
"""Lanes that one step reads."""

ALL_LANES: Final = LaneGroup("", "")
"""From the first to the last: a group without an end goes on to the last lane."""


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

    def first_of(self, wanted: Filter, group: LaneGroup, most: int) -> list[LaneName]:
        """Return the first lanes of a group, by the narrowest list, in the order of their names."""
        if wanted.tenants:
            found = {lane for tenant in wanted.tenants for lane in self._of_tenant(tenant, group, most)}
        else:
            prefixes = [f"{queue}\0" for queue in wanted.queues] or [""]
            found = {lane for prefix in prefixes for lane in self._listed("lane_names", prefix, group, most)}
        return [parse_lane(lane) for lane in sorted(found)[:most]]

    def _of_tenant(self, tenant: str, group: LaneGroup, most: int) -> Sequence[str]:
        prefix = f"{tenant}\0"
        of_tenant = LaneGroup(f"{prefix}{group.first}", f"{prefix}{group.end}" if group.end else "")
        return [name.removeprefix(prefix) for name in self._listed("lane_names_by_tenant", prefix, of_tenant, most)]

    def _listed(self, key: str, prefix: str, group: LaneGroup, most: int) -> Sequence[str]:
        """Return the first members of a list that begin with a prefix and belong to a group."""
        first = max(prefix, str(group.first))
        # No name has the byte after NUL, so all that begin with `prefix` come before it.
        ends = [f"{prefix[:-1]}\1"] if prefix else []
        end = min([*ends, *([str(group.end)] if group.end else [])], default="")
        low = f"[{first}" if first else "-"
        high = f"({end}" if end else "+"
        found = self._connections.command("ZRANGEBYLEX", f"{self._tag}:{key}", low, high, "LIMIT", 0, most)
        return [name.decode() for name in found]


def bound_between(name: str, following: str) -> str:
    """Return the shortest string that is after a name, and at or before the one that follows it."""
    common = next(number for number, letter in enumerate(following) if name[number : number + 1] != letter)
    return following[: common + 1]
