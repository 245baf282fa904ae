"""Waiting in an event loop for what happens on the socket of a connection."""

import asyncio
import select

from reprieve.clock import ticks
from reprieve.stores.postgres.connection import POLL_MS, Connection


async def socket_event(connection: Connection, events: int) -> int:
    """Wait until one of these events happens on the socket; return which.

    Raises an `OperationalError`, and closes the connection, if the server is silent for too long.
    """
    loop, socket, since = asyncio.get_running_loop(), connection.pgconn.socket, ticks()
    happened: asyncio.Future[int] = loop.create_future()

    def note(event: int) -> None:
        if not happened.done():
            happened.set_result(event)

    def check_silence() -> None:
        if ticks() - since > connection.max_silence_seconds:
            note(0)
        timers[0] = loop.call_later(POLL_MS / 1_000, check_silence)

    timers = [loop.call_later(POLL_MS / 1_000, check_silence)]
    loop.add_reader(socket, note, select.POLLIN)
    if events & select.POLLOUT:
        loop.add_writer(socket, note, select.POLLOUT)
    try:
        event = await happened
    finally:
        # Before the connection can be closed: another socket may get its number.
        timers[0].cancel()
        loop.remove_reader(socket)
        if events & select.POLLOUT:
            loop.remove_writer(socket)
    if not event:
        connection.require_response(since)
    return event
