"""The network error behind a failure: found in texts, in exceptions, and in what wraps them."""

import errno
import socket
import ssl
from collections.abc import Callable

import pytest

from reprieve.core.network import CONNECT_TIMEOUT, MAX_DEPTH, network_error_behind, network_error_in

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
UNKNOWN_HOST = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[Errno 111] Connection refused", "ECONNREFUSED"),
        ("connect ECONNREFUSED 10.0.0.1:25", "ECONNREFUSED"),
        ("No connection could be made because the target machine actively refused it", "ECONNREFUSED"),
        ("[Errno 113] No route to host", "EHOSTUNREACH"),
        ("Network is unreachable", "ENETUNREACH"),
        ("[Errno 112] Host is down", "EHOSTDOWN"),
        ("[Errno 100] Network is down", "ENETDOWN"),
        ("[Errno -3] Temporary failure in name resolution", "EAI_AGAIN"),
        ("getaddrinfo EAI_AGAIN mail.example.org", "EAI_AGAIN"),
        ("[Errno -2] Name or service not known", "EAI"),
        (f"[Errno {errno.ECONNREFUSED}] Connect call failed ('127.0.0.1', 25)", "ECONNREFUSED"),
        ("Connection to api.example timed out. (connect timeout=3)", CONNECT_TIMEOUT),
        ("Timeout connecting to server", CONNECT_TIMEOUT),
        ("timed out", ""),
        ("Connection reset by peer", ""),
        ("no such user", ""),
    ],
)
def test_words_and_numbers_of_a_text_name_the_error(text: str, name: str) -> None:
    assert network_error_in(text) == name


def test_several_addresses_are_unreachable_only_when_all_of_them_are() -> None:
    refused, unreachable, reset = errno.ECONNREFUSED, errno.ENETUNREACH, errno.ECONNRESET
    several = "Multiple exceptions: [Errno {}] Connect call failed ('::1', 25, 0, 0), [Errno {}] Connect call failed"
    assert network_error_in(several.format(refused, unreachable)) == "ECONNREFUSED"
    assert network_error_in(several.format(refused, reset)) == "ECONNRESET"
    assert network_error_behind(OSError(several.format(refused, refused))) == "ECONNREFUSED"
    assert network_error_behind(ExceptionGroup("all failed", [REFUSED, REFUSED])) == "ECONNREFUSED"
    assert network_error_behind(
        ExceptionGroup("all failed", [REFUSED, ConnectionResetError(errno.ECONNRESET, "")])
    ) == ("ECONNRESET")


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (REFUSED, "ECONNREFUSED"),
        (ConnectionRefusedError(), "ECONNREFUSED"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "EHOSTUNREACH"),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), "ETIMEDOUT"),
        (TimeoutError("timed out"), ""),
        (OSError(99_999, "unheard of"), ""),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "EAI_AGAIN"),
        (UNKNOWN_HOST, "EAI"),
        (ssl.SSLError(1, "handshake failure"), "SSL"),
        (ValueError("connection refused"), ""),
    ],
)
def test_an_exception_says_it_by_its_number(error: BaseException, name: str) -> None:
    assert network_error_behind(error) == name


class Wrapper(Exception):
    """What a library makes of it."""


def caused(inner: BaseException) -> BaseException:
    wrapper = Wrapper("no luck")
    wrapper.__cause__ = inner
    return wrapper


def in_context(inner: BaseException, module: str = "requests.exceptions") -> BaseException:
    """Return the error of a library that was raised while another was handled, without `from`."""
    wrapper: BaseException = type("ConnectionError", (Exception,), {"__module__": module})("no luck")
    wrapper.__context__ = inner
    return wrapper


def kept_as(name: str) -> Callable[[BaseException], BaseException]:
    def wrap(inner: BaseException) -> BaseException:
        wrapper = Wrapper("no luck")
        setattr(wrapper, name, inner)
        return wrapper

    return wrap


@pytest.mark.parametrize("wrap", [caused, in_context, kept_as("os_error"), kept_as("reason"), Wrapper])
@pytest.mark.parametrize(("inner", "name"), [(REFUSED, "ECONNREFUSED"), (UNKNOWN_HOST, "EAI")])
def test_what_wraps_it_does_not_hide_it(
    wrap: Callable[[BaseException], BaseException], inner: BaseException, name: str
) -> None:
    assert network_error_behind(wrap(inner)) == name
    assert network_error_behind(wrap(wrap(inner))) == name


def test_an_error_of_anything_but_a_network_library_has_its_own_cause() -> None:
    assert network_error_behind(in_context(REFUSED, "shop.orders")) == ""


def test_a_context_that_was_suppressed_is_not_behind_it() -> None:
    wrapper = in_context(REFUSED)
    wrapper.__suppress_context__ = True
    assert network_error_behind(wrapper) == ""


def test_the_outermost_error_counts() -> None:
    reset = ConnectionResetError(errno.ECONNRESET, "reset")
    reset.__context__ = REFUSED
    assert network_error_behind(reset) == "ECONNRESET"


def test_causes_that_run_in_a_circle_end() -> None:
    one, other = Wrapper(), Wrapper()
    one.__cause__, other.__cause__ = other, one
    assert network_error_behind(one) == ""
    deep: BaseException = REFUSED
    for _ in range(MAX_DEPTH):
        deep = caused(deep)
    assert network_error_behind(deep) == ""
    assert deep.__cause__ is not None
    assert network_error_behind(deep.__cause__) == "ECONNREFUSED"


class Trap(Exception):
    """An exception that cannot be looked at."""

    @property
    def reason(self) -> str:
        raise RuntimeError


def test_attributes_that_are_traps_do_not_stop_the_reading() -> None:
    assert network_error_behind(Trap()) == ""
