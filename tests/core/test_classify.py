"""Classification: the tables of the documents, and the order in which they are asked."""

import smtplib
import socket
import sqlite3
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reprieve
from reprieve import classify, rules
from reprieve.core.classify import judge
from reprieve.core.failure import Failure, read
from reprieve.core.rule import Rule
from reprieve.core.verdict import Verdict
from reprieve.errors import InsufficientCredits, InvalidState


@pytest.mark.parametrize("code", ["421", "450", "451", "452"])
def test_smtp_replies_that_pass(code: str) -> None:
    assert classify(code).kind == "transient"
    assert classify(f"{code} please come back").kind == "transient"


@pytest.mark.parametrize("text", ["452", "452 Requested action not taken: insufficient system storage"])
def test_bare_smtp_452_concerns_the_server_and_not_the_job_alone(text: str) -> None:
    # Without an enhanced status it is the server that has no room: the next mail meets the same.
    assert classify(text).scope == "dependency"
    assert classify(smtplib.SMTPDataError(452, b"insufficient system storage")).scope == "dependency"
    assert classify("452 4.2.2 mailbox full").scope == "job"


@pytest.mark.parametrize("code", ["500", "501", "502", "503", "550", "551", "552", "553", "554"])
def test_smtp_replies_that_do_not_pass(code: str) -> None:
    assert classify(code).kind == "permanent"
    assert classify(f"{code} no").kind == "permanent"


@pytest.mark.parametrize(
    ("text", "kind", "scope", "code", "rule"),
    [
        ("550 4.7.1 greylisted", "transient", "job", "550", "smtp:4.7.1"),
        ("450 5.1.1 no such user", "permanent", "job", "450", "smtp:5.1.1"),
        ("550 5.1.1 no such user", "permanent", "job", "550", "smtp:5.1.1"),
        ("4.7.1 greylisted", "transient", "job", "4.7.1", "smtp:4.7.1"),
        ("421 4.3.2 shutting down", "transient", "dependency", "421", "smtp:4.3.2"),
        ("451 4.4.1 no answer from host", "transient", "dependency", "451", "smtp:4.4.1"),
        ("452 4.2.2 mailbox full", "transient", "job", "452", "smtp:4.2.2"),
        ("452 4.5.3 too many recipients", "transient", "job", "452", "smtp:4.5.3"),
        ("421 4.7.0 too many connections", "throttled", "dependency", "421", "smtp:4.7.0"),
        ("450 4.2.1 receiving mail at a rate that is too high", "throttled", "job", "450", "smtp:4.2.1"),
        ("421 4.7.0 try again later", "transient", "dependency", "421", "smtp:4.7.0"),
        ("451 4.7.500 Server busy", "transient", "dependency", "451", "smtp:4.7.500"),
        ("454 4.7.0 temporary authentication failure", "transient", "dependency", "454", "smtp:4.7.0"),
        ("450 4.7.1 come back later", "transient", "job", "450", "smtp:4.7.1"),
        ("451 Greylisted - resend in 300 seconds", "transient", "job", "451", "smtp:451"),
        ("450 4.6.5 conversion failed", "transient", "job", "450", "smtp:4.6.5"),
        ("499 4.6.5 conversion failed", "transient", "job", "499", "smtp:4.6.5"),
        ("550 2.1.5 strange", "permanent", "job", "550", "smtp:550"),
        (
            "454 Throttling failure: Maximum sending rate exceeded",
            "throttled",
            "dependency",
            "454",
            "smtp:454",
        ),
        ("421", "transient", "dependency", "421", "smtp:421"),
        ("450", "transient", "job", "450", "smtp:450"),
        ("451", "transient", "dependency", "451", "smtp:451"),
        ("432", "transient", "tenant", "432", "smtp:432"),
        ("455", "transient", "job", "455", "smtp:455"),
        ("535 5.7.8 credentials invalid", "permanent", "tenant", "535", "smtp:5.7.8"),
        ("530", "permanent", "tenant", "530", "smtp:530"),
        ("550 too many connections", "permanent", "job", "550", "smtp:550"),
        ("SMTP 442 the connection dropped", "transient", "dependency", "442", "smtp:442"),
        ("460 unheard of", "transient", "dependency", "460", "smtp:460"),
        ("599 unheard of", "permanent", "job", "599", "smtp:599"),
    ],
)
def test_smtp(text: str, kind: str, scope: str, code: str, rule: str) -> None:
    verdict = classify(text)
    assert (verdict.kind, verdict.scope, verdict.code, verdict.rule) == (kind, scope, code, rule)


def test_an_smtp_success_is_no_verdict() -> None:
    assert classify("SMTP 250 fine").kind == "unknown"


def test_the_wait_in_a_reply_is_the_push_back() -> None:
    assert classify("451 4.7.1 greylisted, try again in 5 minutes").retry_after == 300
    assert classify("451 4.7.1 greylisted, try again in 60 seconds").retry_after == 60


@pytest.mark.parametrize("reply", ["450 4.7.1 greylisted", "451 Greylisting in action", "450 4.2.0 gray-listed"])
def test_a_greylisted_mail_waits_for_minutes_and_for_itself_alone(reply: str) -> None:
    verdict = classify(reply)
    assert (verdict.kind, verdict.scope, verdict.retry_after) == ("transient", "job", 300)
    assert classify("451 4.3.0 local error").retry_after is None


@pytest.mark.parametrize(
    ("code", "kind", "scope"),
    [
        ("Throttling", "throttled", "dependency"),
        ("ThrottlingException", "throttled", "dependency"),
        ("TooManyRequestsException", "throttled", "dependency"),
        ("ServiceUnavailable", "transient", "dependency"),
        ("InternalFailure", "transient", "dependency"),
        ("InternalServiceError", "transient", "dependency"),
        ("AccountSendingPausedException", "transient", "dependency"),
        ("ExpiredToken", "transient", "tenant"),
        ("MessageRejected", "permanent", "job"),
        ("MailFromDomainNotVerified", "permanent", "tenant"),
        ("MailFromDomainNotVerifiedException", "permanent", "tenant"),
        ("AccessDenied", "permanent", "tenant"),
        ("ValidationError", "permanent", "job"),
    ],
)
def test_ses(code: str, kind: str, scope: str) -> None:
    verdict = classify(code)
    assert (verdict.kind, verdict.scope, verdict.code) == (kind, scope, code)
    assert verdict.rule.startswith("ses:")


def test_an_unknown_aws_code_is_retried() -> None:
    verdict = classify("An error occurred (Unheard) when calling the SendEmail operation: no")
    assert (verdict.kind, verdict.code) == ("unknown", "Unheard")


def test_aws_names_inside_other_protocols_do_not_count() -> None:
    assert rules.ses.judge(Failure(message="x", code="Throttling", protocol="http")) is None
    assert rules.ses.judge(Failure(message="x")) is None


@pytest.mark.parametrize(
    ("status", "kind", "scope"),
    [
        (400, "permanent", "job"),
        (401, "permanent", "tenant"),
        (402, "permanent", "tenant"),
        (403, "permanent", "tenant"),
        (404, "permanent", "job"),
        (407, "permanent", "tenant"),
        (408, "transient", "dependency"),
        (409, "transient", "job"),
        (410, "permanent", "job"),
        (421, "transient", "dependency"),
        (422, "permanent", "job"),
        (423, "transient", "job"),
        (425, "transient", "job"),
        (429, "throttled", "dependency"),
        (301, "permanent", "job"),
        (499, "permanent", "job"),
        (500, "transient", "dependency"),
        (501, "permanent", "job"),
        (502, "transient", "dependency"),
        (503, "transient", "dependency"),
        (504, "transient", "dependency"),
        (505, "permanent", "job"),
        (511, "permanent", "dependency"),
        (520, "transient", "dependency"),
        (599, "transient", "dependency"),
    ],
)
def test_http(status: int, kind: str, scope: str) -> None:
    verdict = classify(f"HTTP {status}")
    assert (verdict.kind, verdict.scope, verdict.code) == (kind, scope, str(status))
    assert verdict.rule == f"http:{status}"


def test_a_bare_number_belongs_to_the_first_table_that_knows_it() -> None:
    assert classify(503).rule == "smtp:503"
    assert classify(503, rules=[rules.http]).rule == "http:503"
    assert classify(404).rule == "http:404"
    assert classify(460, rules=[rules.http]).kind == "unknown"


@pytest.mark.parametrize(
    ("error", "kind", "scope"),
    [
        (TimeoutError("late"), "transient", "dependency"),
        (ConnectionRefusedError("no"), "transient", "dependency"),
        (socket.gaierror(-3, "no"), "transient", "dependency"),
        (ssl.SSLError("handshake"), "transient", "dependency"),
        (smtplib.SMTPServerDisconnected("gone"), "transient", "dependency"),
        (OSError("disk"), "transient", "job"),
        (MemoryError(), "transient", "job"),
        (sqlite3.OperationalError("database is locked"), "transient", "job"),
        (ValueError("x"), "permanent", "job"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "transient", "job"),
        (TypeError("x"), "permanent", "job"),
        (NotImplementedError(), "permanent", "job"),
        (PermissionError("x"), "permanent", "job"),
        (FileNotFoundError("x"), "permanent", "job"),
        (ssl.SSLCertVerificationError("expired"), "permanent", "job"),
        (InsufficientCredits(required=2, available=1), "permanent", "job"),
        (InvalidState("closed"), "permanent", "job"),
        (KeyError("x"), "unknown", "job"),
        (RuntimeError("x"), "unknown", "job"),
        (RuntimeError("connection refused"), "transient", "dependency"),
        (OSError("SSL: CERTIFICATE_VERIFY_FAILED"), "permanent", "job"),
        (sqlite3.IntegrityError("UNIQUE"), "permanent", "job"),
    ],
)
def test_python_exceptions_by_their_most_specific_class(error: Exception, kind: str, scope: str) -> None:
    verdict = classify(error)
    assert (verdict.kind, verdict.scope, verdict.code) == (kind, scope, type(error).__name__)


def test_the_rule_names_the_class_that_decided() -> None:
    assert classify(ConnectionResetError("x")).rule == "python:ConnectionError"


def test_every_librarys_validation_error_is_permanent() -> None:
    kind = type("ValidationError", (Exception,), {"__module__": "some.library"})
    assert classify(kind("x")).rule == "python:ValidationError"
    assert classify(type("Special", (kind,), {})("x")).kind == "permanent"


@pytest.mark.parametrize(
    "text",
    [
        "Connection refused",
        "connection reset by peer",
        "read timed out",
        "request timeout",
        "ECONNREFUSED",
        "ConnectionRefusedError",
        "connect ETIMEDOUT 127.0.0.1:25",
        "Temporary failure in name resolution",
        "[Errno 113] No route to host",
    ],
)
def test_words_of_the_network(text: str) -> None:
    assert (classify(text).kind, classify(text).scope) == ("transient", "dependency")


def test_an_unknown_wrapper_shows_a_cause_that_passes() -> None:
    wrapper = RuntimeError("could not send")
    wrapper.__cause__ = smtplib.SMTPDataError(421, b"4.3.2 down, try again in 9 seconds")
    verdict = classify(wrapper)
    assert (verdict.kind, verdict.scope, verdict.code, verdict.retry_after) == (
        "transient",
        "dependency",
        "421",
        9,
    )


def test_an_unknown_wrapper_hides_a_cause_that_does_not_pass() -> None:
    wrapper = RuntimeError("could not send, retry in 4 s")
    wrapper.__cause__ = ValueError("x")
    verdict = classify(wrapper)
    assert (verdict.kind, verdict.code, verdict.rule, verdict.retry_after) == (
        "unknown",
        "RuntimeError",
        "unknown",
        4,
    )


def test_a_known_wrapper_speaks_for_itself() -> None:
    wrapper = ValueError("x")
    wrapper.__cause__ = TimeoutError("late")
    assert classify(wrapper).kind == "permanent"


def test_rules_are_asked_before_the_tables_and_in_order() -> None:
    passing = Rule(code="550", message="quota", kind="transient", scope="tenant", retry_after="1h")
    assert classify("550 over quota", rules=[passing, rules.smtp]).kind == "transient"
    assert classify("550 over quota", rules=[rules.smtp, passing]).kind == "permanent"
    assert classify("550 unknown user", rules=[passing, rules.smtp]).kind == "permanent"


def test_a_table_that_raises_hides_neither_the_error_nor_the_tables_after_it() -> None:
    class Broken:
        def judge(self, failure: Failure) -> Verdict | None:
            raise KeyError(failure.code)

    assert classify("550 unknown user", rules=[Broken(), rules.smtp]).rule == "smtp:550"
    assert classify(ConnectionError("the real reason"), rules=[Broken()]).rule == "python:ConnectionError"


def test_the_dependency_reaches_the_rules() -> None:
    rule = Rule(dependency="mx.*", kind="permanent")
    assert classify("421", rules=[rule, rules.smtp], dependency="mx.example").kind == "permanent"
    assert classify("421", rules=[rule, rules.smtp], dependency="ses").kind == "transient"


def test_the_moment_reaches_the_reading() -> None:
    error = Exception("x")
    error.status = 503  # type: ignore[attr-defined]  # as aiohttp has it
    error.headers = {"Retry-After": "Thu, 09 Oct 2025 08:54:20 GMT"}  # type: ignore[attr-defined]
    assert classify(error, now=1_760_000_000_000).retry_after == 60


def test_permanent_and_poison_are_the_kinds_that_end_a_job() -> None:
    assert [Verdict(kind=kind).is_retryable for kind in ("transient", "throttled", "unknown")] == [True] * 3
    assert [Verdict(kind=kind).is_retryable for kind in ("permanent", "poison")] == [False] * 2


@given(st.one_of(st.text(), st.integers(), st.binary().map(lambda data: smtplib.SMTPDataError(451, data))))
def test_everything_is_classified(error: str | int | Exception) -> None:
    verdict = reprieve.classify(error)
    assert verdict.rule
    assert verdict.kind in ("transient", "throttled", "permanent", "unknown")


def test_a_message_of_ten_megabytes_is_classified() -> None:
    assert classify("451 4.7.1 " + "\x00greylisted\x1b" * 1_000_000).kind == "transient"


def test_rules_that_raise_are_passed_over_and_the_caller_is_told() -> None:
    class Broken:
        def judge(self, failure: Failure) -> Verdict | None:
            raise LookupError(failure.message)

    told: list[tuple[str, str]] = []
    verdict = judge(read("421 down"), [Broken(), rules.smtp], lambda part, error: told.append((part, str(error))))
    assert verdict.code == "421"
    assert told == [("rules", "421 down")]
    assert judge(read("421 down"), [Broken(), rules.smtp]) == verdict
