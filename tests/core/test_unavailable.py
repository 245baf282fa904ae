"""Which failures cannot be the job's own: nothing was reached, or it refused service before it saw the request."""

import asyncio
import errno
import smtplib
import socket
import ssl
from collections.abc import Callable

import httpx
import psycopg
import pytest
import redis
from redis.asyncio import Redis as AsyncRedis

from reprieve import classify, presets, rules
from tests.servers.ports import free_port

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def foreign(name: str, *bases: type[Exception], **facts: object) -> Exception:
    """Return an exception as a library that is not installed here would raise it."""
    module, _, short = name.rpartition(".")
    error: Exception = type(short, bases or (Exception,), {"__module__": module})("no luck")
    for attribute, value in facts.items():
        setattr(error, attribute, value)
    return error


def behind(error: Exception, inner: Exception) -> Exception:
    """Return an error that was raised while another was handled, without `from`."""
    error.__context__ = inner
    return error


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        ConnectionRefusedError(),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        OSError(errno.EHOSTDOWN, "Host is down"),
        OSError(errno.ENETDOWN, "Network is down"),
        OSError(
            f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] Connect call failed, [Errno {errno.ENETUNREACH}] x"
        ),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        smtplib.SMTPConnectError(421, b"4.3.2 shutting down"),
        smtplib.SMTPHeloError(421, b"service not available"),
        foreign("aiosmtplib.errors.SMTPConnectResponseError", code=421, message="shutting down"),
        foreign("aiosmtplib.errors.SMTPConnectTimeoutError"),
        behind(foreign("aiosmtplib.errors.SMTPConnectError"), REFUSED),
        foreign("requests.exceptions.ConnectTimeout"),
        behind(
            foreign("requests.exceptions.ConnectionError"), foreign("urllib3.exceptions.MaxRetryError", reason=REFUSED)
        ),
        foreign("aiohttp.client_exceptions.ConnectionTimeoutError", TimeoutError),
        foreign("aiohttp.client_exceptions.ClientConnectionError", OSError, os_error=REFUSED),
        foreign("botocore.exceptions.ConnectTimeoutError", __cause__=TimeoutError(errno.ETIMEDOUT, "timed out")),
        foreign("urllib3.exceptions.HTTPError", __cause__=foreign("urllib3.exceptions.ConnectTimeoutError")),
        httpx.ConnectTimeout("timed out"),
        foreign("shop.SendFailed", __cause__=REFUSED),
        psycopg.OperationalError("connection failed: connection to server at 127.0.0.1 failed: Connection refused"),
        "HTTP 503 Service Unavailable",
        "An error occurred (ServiceUnavailable) when calling the SendEmail operation: try later",
        "ServiceUnavailableException",
        "Connection refused",
        "ConnectTimeout: connect timeout",
        "host is down",
    ],
)
def test_what_was_not_reached_is_unavailable(error: Exception | str) -> None:
    verdict = classify(error)
    assert (verdict.kind, verdict.scope, verdict.is_unavailable) == ("transient", "dependency", True)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("timed out"),
        TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        ssl.SSLError(1, "handshake failure"),
        behind(ssl.SSLError(1, "handshake failure"), REFUSED),
        behind(ValueError("wrong"), REFUSED),
        # Raised by a bug while a refused connection was handled, of a cache for example.
        behind(KeyError("lines"), REFUSED),
        behind(RuntimeError("order has no lines"), REFUSED),
        behind(foreign("shop.OrderError"), REFUSED),
        # The second address was reached.
        behind(TimeoutError("timed out"), REFUSED),
        behind(foreign("requests.exceptions.ReadTimeout"), REFUSED),
        RuntimeError("upstream log: Connection refused by policy, template 5 invalid"),
        OSError(errno.ENOSPC, "No space left on device"),
        smtplib.SMTPServerDisconnected("Connection unexpectedly closed"),
        smtplib.SMTPConnectError(554, b"no service here"),
        smtplib.SMTPConnectError(421, b"4.7.0 too many connections"),
        smtplib.SMTPConnectError(421, b"4.7.1 greylisted"),
        smtplib.SMTPHeloError(451, b"local error"),
        smtplib.SMTPDataError(421, b"4.3.2 shutting down"),
        smtplib.SMTPSenderRefused(421, b"closing", "a@example.org"),
        smtplib.SMTPRecipientsRefused({"a@example.org": (421, b"closing")}),
        httpx.ReadTimeout("timed out"),
        httpx.PoolTimeout("no connection is free"),
        foreign("urllib3.exceptions.ConnectTimeoutError", __cause__=socket.gaierror(socket.EAI_NONAME, "unknown")),
        "HTTP 500 Internal Server Error",
        "HTTP 502 Bad Gateway",
        "HTTP 429 Too Many Requests",
        "421 4.3.2 shutting down",
        "An error occurred (InternalFailure) when calling the SendEmail operation: try later",
        "451 4.4.1 connection refused by the next host",
        "TimeoutError",
        "no rule knows this",
    ],
)
def test_what_may_be_the_jobs_own_is_not(error: Exception | str) -> None:
    assert not classify(error).is_unavailable


def smtp(port: int) -> None:
    smtplib.SMTP("127.0.0.1", port)


def http(port: int) -> None:
    httpx.get(f"http://127.0.0.1:{port}/")


def async_http(port: int) -> None:
    async def get() -> None:
        async with httpx.AsyncClient() as client:
            await client.get(f"http://localhost:{port}/")

    asyncio.run(get())


def stream(port: int) -> None:
    asyncio.run(asyncio.wait_for(asyncio.open_connection("localhost", port), 10))


def postgres(port: int) -> None:
    psycopg.connect(f"postgresql://unknown@127.0.0.1:{port}/none")


def key_value(port: int) -> None:
    with redis.Redis(port=port) as client:
        client.ping()


def async_key_value(port: int) -> None:
    async def ping() -> None:
        async with AsyncRedis(port=port) as client:
            await client.ping()

    asyncio.run(ping())


@pytest.mark.parametrize("call", [smtp, http, async_http, stream, postgres, key_value, async_key_value])
def test_every_client_at_hand_says_it_when_nothing_listens(call: Callable[[int], None]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each library raises what it likes
        call(free_port())
    for tables in (presets.standard.rules, (rules.smtp,), ()):
        verdict = classify(caught.value, rules=tables)
        assert (verdict.kind, verdict.scope, verdict.is_unavailable) == ("transient", "dependency", True)
