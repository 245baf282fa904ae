"""What stores keep of a session for people to read: who opened it, and what its last heartbeat said."""

import msgspec

from reprieve.stores.protocol import Heartbeat, Session


class Origin(msgspec.Struct, array_like=True, frozen=True):
    """Who opened a session, and when. It is stored once: the names of tasks may be many."""

    since: int = 0
    host: str = ""
    pid: int = 0
    version: str = ""
    tasks: tuple[str, ...] = ()


class LastHeartbeat(msgspec.Struct, array_like=True, frozen=True):
    """What the last heartbeat of a session said."""

    heartbeat_at: int = 0
    slots: int = 0
    prefetch: int = 0
    running: int = 0
    queues: tuple[str, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode_origin = msgspec.msgpack.Decoder(Origin).decode
_decode_heartbeat = msgspec.msgpack.Decoder(LastHeartbeat).decode


def pack_origin(heartbeat: Heartbeat) -> bytes:
    """Return who opens a session as bytes."""
    return _encode(Origin(heartbeat.now, heartbeat.host, heartbeat.pid, heartbeat.version, heartbeat.tasks))


def pack_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Return what a heartbeat says as bytes."""
    said = LastHeartbeat(heartbeat.now, heartbeat.slots, heartbeat.prefetch, heartbeat.running, tuple(heartbeat.queues))
    return _encode(said)


def unpack_heartbeat(packed: bytes | None) -> LastHeartbeat:
    """Return what a heartbeat said; nothing for a session of an older layout."""
    return _decode_heartbeat(packed) if packed else LastHeartbeat()


def session_of(name: str, last: LastHeartbeat, origin: bytes | None) -> Session:
    """Return a session as it is read; one of an older layout has no origin."""
    opened = _decode_origin(origin) if origin else Origin()
    return Session(
        id=name,
        host=opened.host,
        pid=opened.pid,
        version=opened.version,
        queues=last.queues,
        tasks=opened.tasks,
        slots=last.slots,
        prefetch=last.prefetch,
        running=last.running,
        since=opened.since,
        heartbeat_at=last.heartbeat_at,
    )
