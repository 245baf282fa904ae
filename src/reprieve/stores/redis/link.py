"""Links to the server: one for each event loop, one for threads; and scripts that are run over them.

A call whose connection broke is repeated for a few seconds: every script does nothing a second time and answers as it
did the first, but for updates without an entry, which are made again.
"""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import redis
from redis import exceptions as redis_errors

from reprieve.errors import NewerSchema, StoreClosed
from reprieve.stores.redis.address import Address
from reprieve.stores.redis.ear import Ear
from reprieve.stores.redis.echo import Echo, place_of
from reprieve.stores.redis.faults import FAULTS, closed_is_broken, may_pass, translate
from reprieve.stores.redis.guard import Durability, require_safe, server_of
from reprieve.stores.redis.scripts import Script, script
from reprieve.stores.redis.tags import partitions_for, tag_of

LAYOUT = 1
"""The layout of the keys that this release knows."""

PATIENCE = 5.0
"""Seconds for which a call is repeated while the server is away."""

LOOK_EVERY = 1.0
"""Seconds for which a process believes to know how many partitions there are."""

EXAMINE_EVERY = 10.0
"""Seconds after which a server is looked at again: it may have been restarted, or replaced, without our noticing."""

_PAUSE, _LONGEST_PAUSE = 0.02, 0.5

Argument = bytes | str | int | float
Client = redis.Redis | redis.RedisCluster


class Links:
    """The links of one store: made when they are needed, closed with it."""

    def __init__(self, address: Address, durability: Durability = "full", patience: float = PATIENCE) -> None:
        """Take where the server is; nothing is connected yet."""
        self.address = address
        self.durability = durability
        self.partitions = address.partitions or 1
        """How many partitions there are, as far as is known."""
        self.is_admitted = False
        """Whether the server was looked at, and found to be safe."""
        self.looked: dict[str, float] = {}
        """Servers that were found to be safe, and when."""
        self.look_at = -math.inf
        """When to look again whether others have added partitions."""
        self._patience = patience
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Link] = WeakKeyDictionary()
        self._reader: Client | None = None
        self._making = threading.Lock()
        self._rushing = threading.Lock()
        self._rush: Any = None
        """The connection of whoever is in a hurry."""
        self._is_closed = False

    def tag(self, partition: int) -> str:
        """Return the hash tag of a partition."""
        return tag_of(self.address.prefix, partition)

    def here(self) -> "Link":
        """Return the link of the running event loop."""
        self.require_open()
        loop = asyncio.get_running_loop()
        link = self._loops.get(loop)
        if link is None:
            link = self._loops[loop] = Link(self, self._patience)
        return link

    def read(self, name: str, tag: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the script answers
        """Run a script that only reads, in a thread."""
        return self._in_thread(lambda client: _evaluate(client, script(name), tag, arguments))

    def command(self, *parts: Argument) -> Any:  # noqa: ANN401 - as the server answers
        """Run a command that only reads, in a thread."""
        return self._in_thread(lambda client: client.execute_command(*parts))  # type: ignore[no-untyped-call]

    def time(self) -> tuple[int, int]:
        """Ask the server that has the first partition for its time, in a thread; once, not patiently."""
        self.require_open()
        client: Any = self._client()
        found: tuple[int, int] = client.time(**place_of(client, self.tag(0)).where)
        return found

    def at_once(self, name: str, tag: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as above
        """Run a script that writes, in the calling thread, if one trip is all that it takes; None if that is not sure.

        That is so on a single server that was looked at just now, for one thread at a time: when several come at once,
        a link makes one trip of theirs. What goes wrong is left to a link as well, which is patient and says why.
        """
        self.require_open()
        is_known = self.is_admitted and self.address.mode == "single" and self.durability != "strict"
        now = time.monotonic()
        if not is_known or now >= self.look_at or now - self.looked.get("", -EXAMINE_EVERY) >= EXAMINE_EVERY:
            return None
        if not self._rushing.acquire(blocking=False):
            return None
        try:
            self.require_open()
            if self._rush is None:
                client: Any = self._client()
                self._rush = client.connection_pool.make_connection()
            self._rush.send_command("EVALSHA", script(name).sha, 1, tag, *arguments)
            return self._rush.read_response()
        except BaseException as error:
            # An answer that comes after all must not be taken for that of the next call.
            if self._rush is not None:
                self._rush.disconnect()
            if isinstance(error, FAULTS):
                self.looked.clear()
                return None
            raise
        finally:
            if self._is_closed and self._rush is not None:
                self._rush.disconnect()
            self._rushing.release()

    def _in_thread(self, call: Callable[[Client], Any]) -> Any:  # noqa: ANN401 - as above
        self.require_open()
        give_up_at = time.monotonic() + self._patience
        pause = _PAUSE
        while True:
            try:
                return call(self._client())
            except FAULTS as error:
                if not may_pass(error) or time.monotonic() >= give_up_at:
                    raise translate(error, self.address.shown) from error
            time.sleep(pause)  # noqa: TID251 - in a thread of its own
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _client(self) -> Client:
        """Return the client that all threads share; that of a Cluster connects when it is made."""
        with self._making:
            if self._reader is None:
                self._reader = self.address.connect()
            return self._reader

    async def close(self) -> None:
        """Close the links; those of other loops close when these come to it."""
        self._is_closed = True
        link = self._loops.pop(asyncio.get_running_loop(), None)
        if link is not None:
            await link.close()
        for other in self._loops.values():
            other.abandon()
        if self._rush is not None:
            # Whoever waits for its answer hears that it is gone, and asks elsewhere.
            self._rush.disconnect()
        if self._reader is not None:
            self._reader.close()

    def require_open(self) -> None:
        """Say so if the store was closed."""
        if self._is_closed:
            raise StoreClosed


class Link:
    """The link of one event loop."""

    def __init__(self, links: Links, patience: float) -> None:
        """Make a client; it connects with the first call."""
        self._links = links
        self._patience = patience
        self._client = links.address.connect_async()
        is_watched = links.address.mode != "single"
        self._echo = Echo(self._client, is_watched=is_watched) if links.durability == "strict" else None
        self._ears: dict[str, Ear] = {}
        self._loop = asyncio.get_running_loop()
        self._looking = asyncio.Lock()
        self._keeper = self._loop.create_task(self._keep())

    async def info(self) -> list[dict[str, Any]]:
        """Ask every primary what it has to say of itself."""
        if self._links.address.mode == "cluster":
            nodes = await self._patiently(lambda: self._client.info(target_nodes=self._client.PRIMARIES))
            return (
                [info for info in nodes.values() if isinstance(info, dict)] if "redis_version" not in nodes else [nodes]
            )
        return [await self._patiently(self._client.info)]

    async def time(self) -> int:
        """Ask the server that has the first partition for its time, in microseconds since 1970; once, not patiently."""
        try:
            if self._links.address.mode == "cluster":
                # The client of a loop leaves connections behind when a node dies under two calls at once.
                found = await asyncio.to_thread(self._links.time)
            else:
                with closed_is_broken():
                    found = await self._client.time()
        except FAULTS as error:
            raise translate(error, self._links.address.shown) from error
        seconds, microseconds = found
        return int(seconds) * 1_000_000 + int(microseconds)

    async def _admit(self) -> None:
        """Look at the server before the first call, and refuse one that is not to be trusted with jobs."""
        await self._agree(await self._patiently(self._look_at_all))
        self._links.is_admitted = True

    async def _look_at_all(self) -> int:
        """Look at every primary; answer how many there are."""
        if self._links.address.mode != "cluster":
            await self._look_again(self._links.tag(0))
            return 1
        await self._client.initialize()
        primaries = self._client.get_primaries()
        for node in primaries:
            await self._look({"target_nodes": [node]})
            self._links.looked[node.name] = self._loop.time()
        return len(primaries)

    async def _look(self, where: dict[str, Any]) -> None:
        info, fsync = await self._client.info(**where), None
        if info.get("loading"):
            # While it reads its log, it says that it keeps none.
            message = "LOADING the server still reads its data from disk"
            raise redis_errors.BusyLoadingError(message)
        # It may not be for us to know, which only strict durability minds.
        with contextlib.suppress(redis_errors.ResponseError):
            fsync = (await self._client.config_get("appendfsync", **where)).get("appendfsync")
        server = server_of(info, fsync)
        if self._links.is_admitted and server.role != "master":
            message = "READONLY the server has become a replica"
            raise redis_errors.ReadOnlyError(message)
        require_safe(server, self._links.address, self._links.durability)

    async def _look_again(self, tag: str) -> None:
        """Look at the server that has a hash tag if it is another than before, has been away, or after a while."""
        looked, now = self._links.looked, self._loop.time()
        place = place_of(self._client, tag)
        if now - looked.get(place.name, -EXAMINE_EVERY) >= EXAMINE_EVERY:
            await self._look(place.where)
            looked[place_of(self._client, tag).name] = now

    async def _agree(self, primaries: int) -> None:
        """Agree with everybody else on the layout and on the number of partitions, which only grows."""
        links = self._links
        asked, first = links.address.partitions or 0, partitions_for(primaries)
        layout = await self._patiently(lambda: self._agree_on(asked, first))
        if layout > LAYOUT:
            message = f"the store has layout {layout}, of a newer release; this one knows {LAYOUT}: update it"
            raise NewerSchema(message)

    async def _agree_on(self, asked: int, first: int = 1) -> int:
        """Learn how many partitions there are: so many as are asked for, at the least; answer the layout."""
        layout, partitions = await self._evaluate(script("register"), self._links.tag(0), (LAYOUT, asked, first))
        self._links.partitions = max(self._links.partitions, int(partitions))
        self._links.look_at = self._loop.time() + LOOK_EVERY
        return int(layout)

    async def look_for_more(self) -> None:
        """Learn of partitions that others have added."""
        await self._patiently(lambda: self._agree_on(self._links.partitions))

    async def admit(self) -> None:
        """Look at the server if nobody did yet, and once a second whether others have added partitions."""
        if not self._links.is_admitted:
            await self._admit()
        elif self._loop.time() >= self._links.look_at:
            async with self._looking:
                if self._loop.time() >= self._links.look_at:
                    self._links.look_at = self._loop.time() + LOOK_EVERY
                    # What was to be done may need other servers than the one that knows, and that may be away.
                    with contextlib.suppress(*FAULTS), closed_is_broken():
                        await self._agree_on(self._links.partitions)

    async def run(self, name: str, tag: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the script answers
        """Run a script on a partition."""
        if not self._links.is_admitted:
            await self._admit()
        wanted = script(name)
        return await self._patiently(lambda: self._evaluate(wanted, tag, arguments))

    async def _evaluate(self, wanted: Script, tag: str, arguments: tuple[Argument, ...]) -> Any:  # noqa: ANN401 - as above
        try:
            await self._look_again(tag)
            answer = await self._send(wanted, tag, arguments)
            # A Cluster may have sent the call on to another server.
            await self._look_again(tag)
        except FAULTS:
            self._links.looked.clear()
            raise
        if self._echo is not None:
            await self._echo.wait(tag)
        return answer

    async def _send(self, wanted: Script, tag: str, arguments: tuple[Argument, ...]) -> Any:  # noqa: ANN401 - as above
        try:
            return await self._client.execute_command("EVALSHA", wanted.sha, 1, tag, *arguments)
        except redis_errors.NoScriptError:
            # A server that was restarted, or failed over, does not know it (any more).
            return await self._client.execute_command("EVAL", wanted.text, 1, tag, *arguments)

    async def command(self, *parts: Argument) -> Any:  # noqa: ANN401 - as the server answers
        """Run a command."""
        return await self._patiently(lambda: self._client.execute_command(*parts))

    async def _patiently(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - as above
        try:
            with closed_is_broken():
                return await call()
        except FAULTS as error:
            if not may_pass(error):
                raise translate(error, self._links.address.shown) from error
        loop = asyncio.get_running_loop()
        give_up_at, pause = loop.time() + self._patience, _PAUSE
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                with closed_is_broken():
                    return await call()
            except FAULTS as error:
                if not may_pass(error) or loop.time() >= give_up_at:
                    raise translate(error, self._links.address.shown) from error

    def ear(self, tag: str) -> Ear:
        """Return who listens to a partition's bell."""
        ear = self._ears.get(tag)
        if ear is None:
            ear = self._ears[tag] = Ear(self._client, f"{tag}:notifications")
        return ear

    async def _keep(self) -> None:
        """Stay as long as the loop, which cancels its tasks before it ends: then nothing is left open behind it."""
        try:
            await self._loop.create_future()
        finally:
            await self._disconnect()

    async def close(self) -> None:
        """Stop listening and disconnect."""
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)

    async def _disconnect(self) -> None:
        await asyncio.gather(*(ear.close() for ear in self._ears.values()))
        await self._client.aclose()
        pool = getattr(self._client, "connection_pool", None)
        if pool is not None:
            await pool.disconnect(inuse_connections=True)
        for sentinel in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
            await sentinel.aclose()

    def abandon(self) -> None:
        """Close from another loop, as soon as this one comes to it."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._keeper.cancel)


def _evaluate(client: Client, wanted: Script, tag: str, arguments: tuple[Argument, ...]) -> Any:  # noqa: ANN401 - as the script answers
    try:
        return client.execute_command("EVALSHA", wanted.sha, 1, tag, *arguments)  # type: ignore[no-untyped-call]
    except redis_errors.NoScriptError:
        return client.execute_command("EVAL", wanted.text, 1, tag, *arguments)  # type: ignore[no-untyped-call]
