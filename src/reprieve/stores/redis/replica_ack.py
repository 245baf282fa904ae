"""Replica acknowledgement: with strict durability a call returns when a replica has its writes as well.

A replica that is promoted then has everything that was acknowledged. A server without replicas cannot fail over, and
nothing is waited for. But where Sentinels or a Cluster promote replicas, a server that had some must keep one: its
replicas may have lost it, and one of them may be the primary by now.
"""

from redis.exceptions import TimeoutError as RedisTimeout

from reprieve.stores.redis.node import Argument, Node

_ACK_TIMEOUT_MS = 1_000
"""How long a replica may take to acknowledge."""


class ReplicaAck:
    """Waits for the replicas of the servers that one event loop uses."""

    def __init__(self, *, is_promoted: bool) -> None:
        """Take whether Sentinels or a Cluster promote replicas."""
        self._is_promoted = is_promoted
        self._replicated: set[str] = set()
        """Servers that had replicas when they were asked last; ever, if replicas are promoted."""

    async def wait(self, node: Node) -> None:
        """Wait until a replica, if there is one, has everything that a server has written.

        Raises the driver's timeout error otherwise: the call can be repeated.
        """
        while True:
            was_replicated = node.name in self._replicated
            commands: list[tuple[Argument, ...]] = [("ROLE",)]
            if was_replicated:
                # WAIT covers what the server had written by the last command of the same connection, on any connection.
                commands.append(("WAIT", 1, _ACK_TIMEOUT_MS))
            (role, _, replicas), *acknowledged = await node.execute_together(*commands)
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
