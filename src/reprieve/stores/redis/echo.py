"""The echo: with strict durability a call is answered when a replica has heard of it as well.

Whoever takes over from a primary that is gone then knows everything that was acknowledged. A server that nobody follows
has nobody to fail over to, and is not waited for; but where somebody else decides who takes over, one that was followed
must be: its replicas may have lost it, and one of them be the primary by now.
"""

from typing import Any, NamedTuple

from redis.exceptions import TimeoutError as RedisTimeout

_WAITS = 1_000
"""Milliseconds for which a replica may take to hear."""


class Place(NamedTuple):
    """The server that has a hash tag now, and how to speak to it alone."""

    name: str
    where: dict[str, Any]

    @property
    def is_node(self) -> bool:
        """Whether it is one of several, in a Cluster."""
        return bool(self.where)


def place_of(client: Any, tag: str) -> Place:  # noqa: ANN401 - a client of one of several kinds
    """Return where a hash tag is, as far as the client knows."""
    if hasattr(client, "get_node_from_key"):
        node = client.get_node_from_key(tag)
        return Place(node.name, {"target_nodes": [node]})
    return Place(str(getattr(client.connection_pool, "master_address", "")), {})


class Echo:
    """Waits for the replicas of the servers that one client speaks to."""

    def __init__(self, client: Any, *, is_watched: bool) -> None:  # noqa: ANN401 - as above
        """Take the client, and whether Sentinels or a Cluster decide who takes over; who is followed shows."""
        self._client = client
        self._is_watched = is_watched
        self._followed: set[str] = set()
        """Servers that had replicas when they were asked last, or ever if they are watched."""

    async def wait(self, tag: str) -> None:
        """Wait until a replica, if there is any, has heard everything that was written under a hash tag until now.

        Raises what the client does when a server does not answer in time: then the call can be repeated.
        """
        while True:
            place = place_of(self._client, tag)
            name, where = place
            is_followed = name in self._followed
            pipeline = self._client.pipeline() if place.is_node else self._client.pipeline(transaction=False)
            # WAIT is for what the server had written by the last command of the same connection, whoever wrote it.
            pipeline.execute_command("ROLE", **where)
            if is_followed:
                pipeline.execute_command("WAIT", 1, _WAITS, **where)
            (role, _, replicas), *heard = await pipeline.execute()
            if role != b"master":
                message = "the server has become a replica"
                raise RedisTimeout(message)
            if not replicas and is_followed and self._is_watched:
                message = "no replica follows the server any more, and one may have taken its place; start it again"
                raise RedisTimeout(message)
            if not replicas:
                self._followed.discard(name)
                return
            if is_followed and heard[0]:
                return
            if is_followed:
                message = f"no replica has heard of the call within {_WAITS} ms; it is written, and may be repeated"
                raise RedisTimeout(message)
            self._followed.add(name)
