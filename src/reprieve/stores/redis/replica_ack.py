"""Replica acknowledgement: with strict durability a call returns when a replica has its writes as well.

A replica that is promoted then has everything that was acknowledged. A server without replicas cannot fail over, and
nothing is waited for. But where Sentinels or a Cluster promote replicas, a server that had some must keep one: its
replicas may have lost it, and one of them may be the primary by now.
"""

from typing import Any, NamedTuple

from redis.exceptions import TimeoutError as RedisTimeout

_ACK_TIMEOUT_MS = 1_000
"""How long a replica may take to acknowledge."""


class NodeRef(NamedTuple):
    """The server that has a hash tag now, and the arguments that send a command to it alone."""

    name: str
    target: dict[str, Any]

    @property
    def is_cluster_node(self) -> bool:
        """Whether the server is one of a Cluster."""
        return bool(self.target)


def node_of(client: Any, tag: str) -> NodeRef:  # noqa: ANN401 - a client of one of several kinds
    """Return the server that has a hash tag, as far as the client knows."""
    if hasattr(client, "get_node_from_key"):
        node = client.get_node_from_key(tag)
        return NodeRef(node.name, {"target_nodes": [node]})
    return NodeRef(str(getattr(client.connection_pool, "master_address", "")), {})


class ReplicaAck:
    """Waits for the replicas of the servers that one client uses."""

    def __init__(self, client: Any, *, is_promoted: bool) -> None:  # noqa: ANN401 - as above
        """Take the client, and whether Sentinels or a Cluster promote replicas."""
        self._client = client
        self._is_promoted = is_promoted
        self._replicated: set[str] = set()
        """Servers that had replicas when they were asked last; ever, if replicas are promoted."""

    async def wait(self, tag: str) -> None:
        """Wait until a replica, if there is one, has everything that was written under a hash tag.

        Raises the driver's timeout error otherwise: the call can be repeated.
        """
        while True:
            node = node_of(self._client, tag)
            was_replicated = node.name in self._replicated
            pipeline = self._client.pipeline() if node.is_cluster_node else self._client.pipeline(transaction=False)
            # WAIT covers what the server had written by the last command of the same connection, on any connection.
            pipeline.execute_command("ROLE", **node.target)
            if was_replicated:
                pipeline.execute_command("WAIT", 1, _ACK_TIMEOUT_MS, **node.target)
            (role, _, replicas), *acknowledged = await pipeline.execute()
            if role != b"master":
                message = "the server has become a replica"
                raise RedisTimeout(message)
            if not replicas and was_replicated and self._is_promoted:
                message = "the server has no replica any more, and one may have taken its place; start it again"
                raise RedisTimeout(message)
            if not replicas:
                self._replicated.discard(node.name)
                return
            if was_replicated and acknowledged[0]:
                return
            if was_replicated:
                message = (
                    f"no replica acknowledged the call within {_ACK_TIMEOUT_MS} ms; it is written, and can be repeated"
                )
                raise RedisTimeout(message)
            self._replicated.add(node.name)
