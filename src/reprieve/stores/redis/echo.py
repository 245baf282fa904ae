"""The echo: with strict durability a call is answered when a replica has heard of it as well.

Whoever takes over from a primary that is gone then knows everything that was acknowledged. A server that nobody follows
has nobody to fail over to, and is not waited for.
"""

from typing import Any

from redis.exceptions import TimeoutError as RedisTimeout

_WAITS = 1_000
"""Milliseconds for which a replica may take to hear."""


class Echo:
    """Waits for the replicas of the servers that one client speaks to."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - a client of one of several kinds
        """Take the client; who is followed shows with the first call."""
        self._client = client
        self._followed: set[str] = set()
        """Servers that had replicas when they were asked last."""

    async def wait(self, tag: str) -> None:
        """Wait until a replica, if there is any, has heard everything that was written under a hash tag until now.

        Raises what the client does when a server does not answer in time: then the call can be repeated.
        """
        is_cluster = hasattr(self._client, "get_node_from_key")
        node = self._client.get_node_from_key(tag) if is_cluster else None
        where, name = ({}, "") if node is None else ({"target_nodes": [node]}, node.name)
        while True:
            is_followed = name in self._followed
            pipeline = self._client.pipeline(transaction=False) if node is None else self._client.pipeline()
            # WAIT is for what the server had written by the last command of the same connection, whoever wrote it.
            pipeline.execute_command("ROLE", **where)
            if is_followed:
                pipeline.execute_command("WAIT", 1, _WAITS, **where)
            (role, _, replicas), *heard = await pipeline.execute()
            if role != b"master":
                message = "the server has become a replica"
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
