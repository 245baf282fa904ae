"""Codes that exceptions carry without saying of which protocol they are, and codes in plain messages."""

import json

import pytest

from reprieve.core.classify import TABLES, classify, judge
from reprieve.core.failure import read
from reprieve.core.rule import Rule, Rules
from reprieve.core.rules import http, ses, smtp

MAIL: tuple[Rules, ...] = (smtp, ses)


class SendError(Exception):
    def __init__(self, code: object) -> None:
        super().__init__("the mail was not sent")
        self.code = code


class SmtpError(SendError):
    pass


class SESError(SendError):
    pass


class SessionError(SendError):
    pass


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, "transient") for code in (421, 450, 451, 452)),
        *((code, "permanent") for code in (500, 501, 502, 503, 550, 551, 552, 553, 554)),
        ("421", "transient"),
        ("550", "permanent"),
        ("Throttling", "throttled"),
        ("ServiceUnavailable", "transient"),
        ("MessageRejected", "permanent"),
        ("MailFromDomainNotVerified", "permanent"),
    ],
)
def test_a_policy_for_mail_reads_the_code_of_any_exception(code: object, kind: str) -> None:
    verdict = classify(SendError(code), rules=MAIL)
    assert (verdict.kind, verdict.code) == (kind, str(code))


@pytest.mark.parametrize(("code", "kind"), [(550, "permanent"), (450, "transient"), ("MessageRejected", "permanent")])
def test_a_code_that_only_one_table_defines_is_read_by_the_default_rules(code: object, kind: str) -> None:
    assert classify(SendError(code)).kind == kind


@pytest.mark.parametrize("code", [500, 503, 451, "card_declined", 50035, 600, True, None, "", 4.5])
def test_a_code_that_may_mean_something_else_is_not_read(code: object) -> None:
    verdict = classify(SendError(code))
    assert (verdict.kind, verdict.code) == ("unknown", "SendError")


def test_a_table_that_the_policy_does_not_have_reads_nothing() -> None:
    assert classify(SendError(550), rules=[http]).kind == "unknown"
    assert classify(SendError(550), rules=[ses]).kind == "unknown"
    assert classify(SendError("MessageRejected"), rules=[smtp]).kind == "unknown"


def test_a_class_that_names_its_protocol_is_believed() -> None:
    assert (read(SmtpError(503)).protocol, classify(SmtpError(503)).kind) == ("smtp", "permanent")
    assert (read(SESError("Throttling")).protocol, classify(SESError("Throttling")).kind) == ("aws", "throttled")
    assert (read(SessionError("Throttling")).protocol, read(SessionError("Throttling")).bare_code) == ("", "Throttling")


def test_a_rule_matches_the_code_of_any_exception() -> None:
    rules = [Rule(code="card_declined", kind="permanent"), *TABLES]
    assert classify(SendError("card_declined"), rules=rules).kind == "permanent"
    assert judge(read(SendError("other")), rules).kind == "unknown"


def test_a_code_of_megabytes_that_no_protocol_is_named_for_is_clipped() -> None:
    assert len(read(SendError("x" * 1_000_000)).bare_code) == 80


@pytest.mark.parametrize(
    ("message", "code", "enhanced", "kind"),
    [
        ("550 5.1.1 no such user", "550", "5.1.1", "permanent"),
        ("550-5.1.1 no such user", "550", "5.1.1", "permanent"),
        ("451 4.7.1 greylisted", "451", "4.7.1", "transient"),
        ("550 Mailbox unavailable", "550", "", "permanent"),
        ("452 Insufficient system storage", "452", "", "transient"),
    ],
)
def test_a_reply_in_the_message_of_a_plain_exception_is_read(message: str, code: str, enhanced: str, kind: str) -> None:
    failure = read(RuntimeError(message))
    assert (failure.code, failure.enhanced, failure.protocol) == (code, enhanced, "smtp")
    assert classify(RuntimeError(message)).kind == kind


@pytest.mark.parametrize(
    "message",
    ["550 items", "550", "order 550 5.1.1 is late", "550 5.1.1.7 is the version", "5501 mailbox", "250 mailbox ok"],
)
def test_a_number_in_the_message_of_a_plain_exception_is_no_reply(message: str) -> None:
    assert read(RuntimeError(message)).code == ""
    assert classify(RuntimeError(message)).kind == "unknown"


def test_a_response_that_cannot_be_decoded_may_pass() -> None:
    with pytest.raises(json.JSONDecodeError) as page:
        json.loads("<html>")
    with pytest.raises(UnicodeDecodeError) as latin:
        b"\xff".decode()
    for error in (page.value, latin.value):
        assert (classify(error).kind, classify(error).scope) == ("transient", "job")
    assert classify(ValueError("no")).kind == "permanent"
    assert classify(UnicodeEncodeError("ascii", "ä", 0, 1, "no")).kind == "permanent"
