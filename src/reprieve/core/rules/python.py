"""Python's exceptions and those of well-known libraries: the most specific class that is known wins."""

import re

from reprieve.core.failure import Failure
from reprieve.core.network import CONNECT_TIMEOUT, UNREACHABLE, network_error_in
from reprieve.core.verdict import Kind, Scope, Verdict

_CLASSES: dict[tuple[Kind, Scope], str] = {
    ("transient", "dependency"): """
        TimeoutError ConnectionError socket.gaierror socket.herror ssl.SSLError
        smtplib.SMTPServerDisconnected aiosmtplib.errors.SMTPServerDisconnected
        http.client.IncompleteRead http.client.BadStatusLine
        requests.exceptions.ConnectionError requests.exceptions.Timeout requests.exceptions.ChunkedEncodingError
        httpx.TransportError httpcore.NetworkError httpcore.TimeoutException
        aiohttp.client_exceptions.ClientConnectionError aiohttp.client_exceptions.ClientPayloadError
        urllib3.exceptions.HTTPError
        botocore.exceptions.HTTPClientError botocore.exceptions.ConnectionError
        botocore.exceptions.EndpointConnectionError
        asyncpg.exceptions.PostgresConnectionError
        redis.exceptions.ConnectionError redis.exceptions.TimeoutError redis.exceptions.BusyLoadingError
        pymongo.errors.ConnectionFailure
        aiosmtplib.errors.SMTPConnectError aiosmtplib.errors.SMTPTimeoutError
    """,
    ("transient", "job"): """
        OSError MemoryError EOFError json.decoder.JSONDecodeError simplejson.errors.JSONDecodeError UnicodeDecodeError
        sqlite3.OperationalError psycopg.errors.SerializationFailure psycopg.errors.DeadlockDetected
        asyncpg.exceptions.SerializationError asyncpg.exceptions.DeadlockDetectedError
    """,
    ("permanent", "job"): """
        ValueError TypeError NotImplementedError PermissionError FileNotFoundError FileExistsError
        IsADirectoryError NotADirectoryError ssl.SSLCertVerificationError
        requests.exceptions.InvalidURL requests.exceptions.MissingSchema requests.exceptions.InvalidSchema
        asyncpg.exceptions.IntegrityConstraintViolationError
        reprieve.errors.InvalidState reprieve.errors.InsufficientCredits
    """,
}
_JUDGEMENTS: dict[str, tuple[Kind, Scope]] = {
    name: judgement for judgement, names in _CLASSES.items() for name in names.split()
}
_NAMES: dict[str, tuple[Kind, Scope]] = {
    # Every library has its own ValidationError, and no retry cures one.
    "ValidationError": ("permanent", "job"),
    # The names of PEP 249, which every database driver uses.
    "IntegrityError": ("permanent", "job"),
    "ProgrammingError": ("permanent", "job"),
    "DataError": ("permanent", "job"),
    "OperationalError": ("transient", "dependency"),
    "InterfaceError": ("transient", "dependency"),
}
_CONNECT_TIMEOUTS = {
    "aiohttp.client_exceptions.ConnectionTimeoutError",
    "aiosmtplib.errors.SMTPConnectTimeoutError",
    "botocore.exceptions.ConnectTimeoutError",
    "httpcore.ConnectTimeout",
    "httpx.ConnectTimeout",
    "psycopg.errors.ConnectionTimeout",
    "requests.exceptions.ConnectTimeout",
    "urllib3.exceptions.ConnectTimeoutError",
}
_JUDGEMENTS |= dict.fromkeys(_CONNECT_TIMEOUTS, ("transient", "dependency"))
_CERTIFICATE = re.compile(r"certificate[ _]verify[ _]failed", re.IGNORECASE)
_NETWORK = re.compile(
    r"connection (?:refused|reset|aborted|closed|timed out)|timed? ?out|temporary failure in name resolution"
    r"|name or service not known|network is unreachable|no route to host|broken pipe"
    r"|\bE(?:CONNREFUSED|CONNRESET|TIMEDOUT|HOSTUNREACH|NETUNREACH|AI_AGAIN|PIPE)\b",
    re.IGNORECASE,
)


def judge(failure: Failure) -> Verdict | None:
    """Return the verdict by the classes of the exception, then by the wording of network errors."""
    if _CERTIFICATE.search(failure.message):
        return _verdict(("permanent", "job"), failure, "python:certificate")
    for name in failure.types:
        short = name.rpartition(".")[2]
        judgement = _JUDGEMENTS.get(name) or _NAMES.get(short)
        if name == "OSError" and failure.network in UNREACHABLE:
            # Some network errors have no class of their own.
            return unreachable(failure)
        if judgement is not None:
            # The message of a network error may tell more; that of any other class may quote anything.
            network = failure.network or network_error_in(failure.message)
            return _verdict(judgement, failure, f"python:{short}", network)
    if words := _NETWORK.search(failure.message):
        return _verdict(("transient", "dependency"), failure, f"python:{words[0].lower()}")
    return None


def unreachable(failure: Failure) -> Verdict:
    """Return the verdict on a failure to connect, whatever the class of the exception."""
    return _verdict(("transient", "dependency"), failure, f"python:{failure.network}")


def _verdict(judgement: tuple[Kind, Scope], failure: Failure, rule: str, network: str = "") -> Verdict:
    kind, scope = judgement
    is_network = judgement == ("transient", "dependency")
    return Verdict(
        kind=kind,
        scope=scope,
        code=failure.code or failure.type,
        retry_after=failure.retry_after,
        rule=rule,
        is_unavailable=is_network and _is_unavailable(failure, network or failure.network),
    )


def _is_unavailable(failure: Failure, network: str) -> bool:
    """Whether no connection was made: refused, unreachable, or what its library calls a connect timeout."""
    if network in UNREACHABLE or network == CONNECT_TIMEOUT:
        return True
    # Older versions of urllib3 report every failed connection as a connect timeout, even an unknown host.
    if network not in ("", "ETIMEDOUT"):
        return False
    cause = failure.cause
    return not _CONNECT_TIMEOUTS.isdisjoint(failure.types) or (
        cause is not None and _is_unavailable(cause, cause.network)
    )
