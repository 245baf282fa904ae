"""The facts of failures, read from texts and from the exceptions of libraries that are not imported."""

import json
import math
import smtplib
import urllib.error
from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.failure import MAX_PUSH_BACK_SECONDS, Failure, read
from reprieve.core.text import MAX_TEXT_CHARS

NOW = 1_760_000_000_000


class Headers(dict[str, str]):
    """Headers as requests and httpx have them: looked up in any case of letters."""

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]  # texts only
        return {key.lower(): value for key, value in self.items()}.get(name.lower(), default)


class Response:
    def __init__(self, status_code: object, headers: dict[str, str] | None = None) -> None:
        self.status_code = status_code
        self.headers = Headers(headers or {})


class HTTPStatusError(Exception):
    def __init__(self, response: object) -> None:
        super().__init__("the request failed")
        self.response = response


class ClientResponseError(Exception):
    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"{status}, message='no'")
        self.status = status
        self.headers = Headers(headers or {})


class ClientError(Exception):
    """The shape of botocore's."""

    def __init__(self, code: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"An error occurred ({code}) when calling the SendEmail operation: no")
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPHeaders": headers or {}}}


@pytest.mark.parametrize(
    ("text", "code", "enhanced", "protocol"),
    [
        ("550 4.7.1 greylisted", "550", "4.7.1", "smtp"),
        ("550-5.1.1 first line", "550", "5.1.1", "smtp"),
        ("550 [5.1.1] no", "550", "5.1.1", "smtp"),
        ("450 (#4.2.2) full", "450", "4.2.2", "smtp"),
        ("SMTP 550: Mailbox not found", "550", "", "smtp"),
        ("smtp error: 421 gone", "421", "", "smtp"),
        ("421", "421", "", ""),
        ("421 service not available", "421", "", ""),
        ("4.7.1 come back later", "4.7.1", "4.7.1", "smtp"),
        ("mailbox is full (#5.2.2)", "5.2.2", "5.2.2", "smtp"),
        ("503 Service Unavailable", "503", "", "http"),
        ("503: service unavailable", "503", "", "http"),
        ("503 Service Temporarily Unavailable", "503", "", "http"),
        ("504 Gateway Time-out", "504", "", "http"),
        ("502 Bad Gateway: upstream", "502", "", "http"),
        ("(535, b'5.7.8 Username and Password not accepted')", "535", "5.7.8", "smtp"),
        ("(421, b'bye')", "421", "", "smtp"),
        ("550 2.1.5 strange", "550", "", ""),
        ("429 Too Many Requests", "429", "", "http"),
        ("HTTP 503", "503", "", "http"),
        ("HTTP/1.1 404 Not Found", "404", "", "http"),
        ("got HTTP status code: 502 from upstream", "502", "", "http"),
        ("503 Server Error: Service Unavailable for url: http://x", "503", "", "http"),
        ("429, message='Too Many Requests'", "429", "", "http"),
        ("An error occurred (Throttling) when calling the SendEmail operation: no", "Throttling", "", "aws"),
        ("Throttling", "Throttling", "", ""),
        ("550.1 is a number", "", "", ""),
        ("5501 items", "", "", ""),
        ("connection from 5.6.7.8 refused", "", "", ""),
        ("4.5.6.7 is an address", "", "", ""),
        ("421 4.5.6.7 is an address", "421", "", ""),
        ("something else", "", "", ""),
    ],
)
def test_codes_are_read_from_texts(text: str, code: str, enhanced: str, protocol: str) -> None:
    failure = read(text)
    assert (failure.code, failure.enhanced, failure.protocol) == (code, enhanced, protocol)
    assert failure.message == text


def test_a_bare_number_is_a_code() -> None:
    assert read(421) == read("421")


def test_a_single_word_may_be_the_name_of_an_error() -> None:
    assert read("Throttled").types == ("Throttled",)
    assert read("TimeoutError").types[:2] == ("TimeoutError", "OSError")
    assert read("print").types == ("print",)
    assert read("x" * 80).types == ("x" * 80,)
    assert read("x" * 81).types == ()
    assert read("two words").types == ()


def test_facts_read_before_are_left_alone() -> None:
    failure = Failure(message="read", code="1")
    assert read(failure) is failure


def test_smtplib_speaks_by_its_attributes() -> None:
    failure = read(smtplib.SMTPDataError(451, b"4.7.1 Greylisted, try again in 300 seconds"), dependency="mx")
    assert (failure.code, failure.enhanced, failure.protocol) == ("451", "4.7.1", "smtp")
    assert failure.message == "451 4.7.1 Greylisted, try again in 300 seconds"
    assert failure.retry_after == 300
    assert failure.dependency == "mx"
    assert failure.types[0] == "smtplib.SMTPDataError"
    assert failure.type == "SMTPDataError"


def test_a_recipient_that_may_still_get_the_mail_speaks_for_all() -> None:
    replies = [("a@x", (550, b"5.1.1 unknown")), ("b@x", (450, b"4.2.1 busy"))]
    assert read(smtplib.SMTPRecipientsRefused(dict(replies))).enhanced == "4.2.1"
    assert read(smtplib.SMTPRecipientsRefused(dict(reversed(replies)))).enhanced == "4.2.1"
    assert read(smtplib.SMTPRecipientsRefused(dict(replies[:1]))).enhanced == "5.1.1"
    assert read(smtplib.SMTPRecipientsRefused({})).code == ""


def test_a_reply_that_looks_like_http_is_still_smtp() -> None:
    assert read(smtplib.SMTPResponseException(503, "Service Unavailable")).protocol == "smtp"
    filtered = read(smtplib.SMTPDataError(451, b"4.3.0 content filter answered HTTP 503"))
    assert (filtered.code, filtered.enhanced, filtered.protocol) == ("451", "4.3.0", "smtp")


def test_aiosmtplib_speaks_by_its_attributes() -> None:
    kind = type("SMTPRecipientRefused", (Exception,), {"__module__": "aiosmtplib.errors"})
    one = kind("refused")
    one.code, one.message = 550, "5.7.1 blocked"
    assert read(one).enhanced == "5.7.1"
    many = kind("refused")
    later = kind("refused")
    later.code, later.message = 450, "4.2.1 busy"
    many.recipients = [one]
    assert read(many).enhanced == "5.7.1"
    many.recipients = [one, later]
    assert read(many).enhanced == "4.2.1"
    assert read(kind("no code")).code == ""
    many.recipients = []
    assert read(many).code == ""


def test_botocore_speaks_by_its_response() -> None:
    failure = read(ClientError("Throttling", {"retry-after": "7"}))
    assert (failure.code, failure.protocol, failure.retry_after) == ("Throttling", "aws", 7.0)
    assert read(ClientError("X")).retry_after is None
    without_metadata = ClientError("X")
    without_metadata.response.pop("ResponseMetadata")
    assert read(without_metadata).code == "X"
    without_error = ClientError("X")
    without_error.response.pop("Error")
    assert read(without_error).protocol == ""
    without_code = ClientError("X")
    without_code.response["Error"] = {}
    assert read(without_code).code == ""


def test_http_clients_speak_by_their_status() -> None:
    requests_like = read(HTTPStatusError(Response(503, {"Retry-After": "12"})))
    assert (requests_like.code, requests_like.protocol, requests_like.retry_after) == ("503", "http", 12.0)
    aiohttp_like = read(ClientResponseError(429, {"Retry-After": "1.5"}))
    assert (aiohttp_like.code, aiohttp_like.retry_after) == ("429", 1.5)
    starlette_like = Exception("no")
    starlette_like.status_code = 404  # type: ignore[attr-defined]  # as web frameworks set it
    assert read(starlette_like).code == "404"
    urllib3_like = HTTPStatusError(type("Answer", (), {"status": 500})())
    assert read(urllib3_like).code == "500"


def test_urllib_speaks_by_its_code() -> None:
    headers = Message()
    headers["Retry-After"] = "3"
    with urllib.error.HTTPError("http://x", 503, "no", headers, None) as error:
        failure = read(error)
    assert (failure.code, failure.protocol, failure.retry_after) == ("503", "http", 3.0)


@pytest.mark.parametrize("status", [99, 600, "503", None, 503.0])
def test_what_is_no_status_is_not_taken_for_one(status: object) -> None:
    assert read(HTTPStatusError(Response(status))).protocol == ""


@pytest.mark.parametrize("status", [100, 599])
def test_the_edges_of_statuses(status: int) -> None:
    assert read(HTTPStatusError(Response(status))).code == str(status)


def test_retry_after_as_a_date_counts_from_the_answers_own_date() -> None:
    dates = {"Retry-After": "Thu, 09 Oct 2025 10:00:30 GMT", "Date": "Thu, 09 Oct 2025 10:00:00 GMT"}
    assert read(HTTPStatusError(Response(503, dates)), now=0).retry_after == 30


def test_retry_after_as_a_date_counts_from_now_where_the_answer_has_no_date() -> None:
    dates = {"Retry-After": "Thu, 09 Oct 2025 08:54:20 GMT"}
    assert read(HTTPStatusError(Response(503, dates)), now=NOW).retry_after == 60
    assert read(HTTPStatusError(Response(503, dates))).retry_after is None


def test_a_date_in_the_past_is_no_wait() -> None:
    dates = {"Retry-After": "Wed, 08 Oct 2025 08:54:20 GMT"}
    assert read(HTTPStatusError(Response(503, dates)), now=NOW).retry_after == 0


@pytest.mark.parametrize("value", ["soon", "", "nan", "Thu, 99 Oct 2025 08:54:20 GMT", "09 Oct 2025 08:54:20 -0000"])
def test_a_retry_after_that_cannot_be_read_is_none(value: str) -> None:
    assert read(HTTPStatusError(Response(503, {"Retry-After": value})), now=NOW).retry_after is None


@pytest.mark.parametrize(
    ("value", "expected"), [("-1", 0), ("1e30", MAX_PUSH_BACK_SECONDS), ("inf", MAX_PUSH_BACK_SECONDS)]
)
def test_what_an_external_system_asks_for_is_clamped(value: str, expected: float) -> None:
    assert read(HTTPStatusError(Response(503, {"Retry-After": value}))).retry_after == expected


def test_headers_that_are_no_mapping_are_ignored() -> None:
    response = Response(503)
    response.headers = [("Retry-After", "1")]  # type: ignore[assignment]  # not what any client does
    assert read(HTTPStatusError(response)).retry_after is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("450 try again in 5 minutes", 300),
        ("retry after 30 seconds", 30),
        ("please wait 2 hours", 7_200),
        ("come back in 90s", 90),
        ("retry in 3 min", 180),
        ("try again in 999999 hours", MAX_PUSH_BACK_SECONDS),
        ("retry after 500ms", 0.5),
        ("retry after 500 milliseconds", 0.5),
        ("451 Greylisted - resend in 300 seconds", 300),
        ("Timed out after waiting 300 seconds", None),
        ("waited 50 s", None),
        ("try again later", None),
        ("retried 3 times", None),
    ],
)
def test_waits_are_read_from_words(text: str, expected: float | None) -> None:
    assert read(text).retry_after == expected


def test_any_exception_may_carry_a_retry_after() -> None:
    error = Exception("slow down")
    error.retry_after = 8  # type: ignore[attr-defined]  # as many API clients do
    assert read(error).retry_after == 8
    error.retry_after = object()  # type: ignore[attr-defined]
    assert read(error).retry_after is None
    error.retry_after = math.nan  # type: ignore[attr-defined]
    assert read(error).retry_after is None


def test_the_classes_are_named_most_specific_first() -> None:
    assert read(ConnectionRefusedError("x")).types == (
        "ConnectionRefusedError",
        "ConnectionError",
        "OSError",
        "Exception",
        "BaseException",
    )


def test_a_group_is_read_as_its_first_exception() -> None:
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [TimeoutError("late"), ValueError("x")])])
    assert read(group).type == "TimeoutError"


def test_a_url_error_is_read_as_its_reason() -> None:
    assert read(urllib.error.URLError(ConnectionRefusedError("no"))).type == "ConnectionRefusedError"
    assert read(urllib.error.URLError("unknown url type")).type == "URLError"


def test_the_cause_is_read_too() -> None:
    error = KeyError("x")
    error.__cause__ = TimeoutError("late")
    cause = read(error, dependency="ses").cause
    assert cause is not None
    assert (cause.type, cause.dependency) == ("TimeoutError", "ses")


def test_causes_that_run_in_a_circle_end() -> None:
    first, second = KeyError("1"), KeyError("2")
    first.__cause__, second.__cause__ = second, first
    failure: Failure | None = read(first)
    depth = 0
    while failure is not None:
        failure, depth = failure.cause, depth + 1
    assert depth == 4


class Hostile(Exception):
    """Everything about it is a trap."""

    def __init__(self, **attributes: object) -> None:
        super().__init__("hostile")
        vars(self).update(attributes)

    @property
    def response(self) -> object:
        raise RuntimeError


@pytest.mark.parametrize(
    "error",
    [
        Hostile(),
        Hostile(recipients={"a@b": "full"}),
        Hostile(retry_after=10**400),
        Hostile(status=503, headers={"Retry-After": "Thu, 09 Oct 2025 08:54:20 +9999999999"}),
    ],
)
def test_attributes_that_are_traps_do_not_stop_the_reading(error: Exception) -> None:
    assert read(error, now=NOW).message == "hostile"


def test_a_date_that_overflows_is_no_push_back() -> None:
    dates = {"Retry-After": "Thu, 09 Oct 9999 08:54:20 -2359"}
    assert read(HTTPStatusError(Response(503, dates)), now=NOW).retry_after in (None, MAX_PUSH_BACK_SECONDS)
    assert (
        read(HTTPStatusError(Response(503, {"Retry-After": "1" * 400})), now=NOW).retry_after == MAX_PUSH_BACK_SECONDS
    )


def test_a_code_of_megabytes_is_clipped() -> None:
    assert len(read(ClientError("x" * 1_000_000)).code) == 80


def test_groups_nested_without_end_are_read() -> None:
    error: Exception = ValueError("x")
    for _ in range(5_000):
        error = ExceptionGroup("g", [error])
    assert read(error).type == "ExceptionGroup"


def test_the_calls_of_the_application_are_kept_and_those_of_libraries_are_not() -> None:
    def ask() -> None:
        json.loads("{")

    with pytest.raises(ValueError, match="Expecting") as caught:
        ask()
    frames = read(caught.value).frames
    assert [frame.function.rpartition(".")[2] for frame in frames][-1] == "ask"
    assert not any(frame.module.startswith("json") for frame in frames)


def test_an_exception_without_words_is_named_by_its_class() -> None:
    assert read(KeyError()).message == "KeyError"


def test_an_exception_that_cannot_be_printed_is_still_read() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert read(Mute()).message.endswith("Mute")


def test_ten_megabytes_of_control_characters_become_one_short_line() -> None:
    message = read("a\x00\x1b[31mb\n\u202ec" + "\x07x" * 5_000_000).message
    assert message.startswith("a b c x x")
    assert message.isprintable()
    assert len(message) <= MAX_TEXT_CHARS


def test_an_empty_text_still_says_something() -> None:
    assert read("").message == "unknown error"
    assert read("\x00").message == "unknown error"


@given(st.one_of(st.text(), st.integers()))
def test_every_text_and_number_can_be_read(error: str | int) -> None:
    failure = read(error)
    assert failure.message
    assert failure.retry_after is None or 0 <= failure.retry_after <= MAX_PUSH_BACK_SECONDS
