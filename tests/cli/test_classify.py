"""`reprieve classify`: the verdicts and decisions of production, in words and for scripts."""

import re
from pathlib import Path

import pytest

from tests.cli.shell import answer, complaint, reprieve

RULES = """
policy = "email"

[[rules]]
code = "550"
message = "quota"
kind = "transient"
scope = "tenant"
retry_after = "10m"

[[rules]]
dependency = "printer"
kind = "permanent"
"""


def facts(*arguments: str) -> dict[str, str]:
    shown = reprieve("classify", *arguments).stdout
    return dict(re.findall(r"^  (\w+(?: \w+)?) {2,}(.+?) *$", shown, re.MULTILINE))


def test_the_verdict_and_the_decision_are_shown() -> None:
    assert facts("450 mailbox busy, try again in 5 minutes") == {
        "kind": "transient: passes by itself",
        "scope": "job: nobody else would fail",
        "code": "450",
        "asks for": "a wait of 5m",
        "rule": "smtp:450",
        "standard": "retry in 5m, at most 10 attempts",
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("421 4.3.2 service not available", "retry in 1s to 2s, at most 10 attempts"),
        ("550 5.1.1 no such user", "dead at once, as permanent"),
        ("nobody knows this", "retry in 1s to 2s, at most 10 attempts"),
    ],
)
def test_the_default_policy_decides(text: str, sentence: str) -> None:
    assert facts(text)["standard"] == sentence


def test_a_dependency_that_asks_to_slow_down_costs_no_attempt_and_parks_when_down() -> None:
    shown = facts("HTTP 429 Too Many Requests", "--dependency", "mail")
    assert shown["standard"] == "retry in 1s to 2s, and no attempt is spent"
    assert shown["when down"] == "park until it is back, and no attempt is spent"
    assert "when down" not in facts("HTTP 429 Too Many Requests")


def test_a_dependency_that_is_unavailable_parks_one_job_alone() -> None:
    shown = facts("[Errno 111] Connection refused", "--dependency", "mail")
    assert shown["unavailable"] == "it cannot be the job's own: one job alone is spared"
    assert shown["standard"] == "park for 1s, and no attempt is spent"
    (judged,) = answer("classify", "HTTP 503 Service Unavailable", "--dependency", "mail")
    assert (judged["isUnavailable"], judged["decision"], judged["isCharged"]) == (True, "park", False)
    assert "unavailable" not in facts("421 4.3.2 service not available", "--dependency", "mail")


def test_every_text_is_one_error() -> None:
    judged = answer("classify", "550 4.7.1 greylisted", "550 5.1.1 no such user", "HTTP 503 Service Unavailable")
    assert [(each["kind"], each["scope"], each["rule"]) for each in judged] == [
        ("transient", "job", "smtp:4.7.1"),
        ("permanent", "job", "smtp:5.1.1"),
        ("transient", "dependency", "http:503"),
    ]


def test_scripts_get_everything() -> None:
    assert answer("classify", "421 4.7.0 try again in 90 seconds", "--dependency", "mail") == [
        {
            "text": "421 4.7.0 try again in 90 seconds",
            "kind": "transient",
            "scope": "dependency",
            "code": "421",
            "retryAfter": 90.0,
            "rule": "smtp:4.7.0",
            "isUnavailable": False,
            "isRetryable": True,
            "policy": "standard",
            "decision": "retry",
            "earliest": 90.0,
            "latest": 90.0,
            "isCharged": True,
            "maxAttempts": 10,
            "death": None,
            "whenDown": "park",
        }
    ]


def test_a_bare_number_is_read_by_the_tables_that_are_named_in_their_order() -> None:
    assert answer("classify", "503")[0]["rule"] == "smtp:503"
    assert answer("classify", "503", "--rules", "http")[0]["rule"] == "http:503"
    assert answer("classify", "503", "--rules", "http, smtp")[0]["rule"] == "http:503"
    assert answer("classify", "550 5.1.1 no such user", "--rules", "http")[0]["kind"] == "unknown"


def test_a_table_that_does_not_exist_is_refused() -> None:
    assert "there is no table 'ftp'; the tables are smtp, ses, http" in complaint(
        "classify", "503", "--rules", "smtp,ftp", status=2
    )


def test_rules_of_the_operator_go_first_and_the_default_policy_decides(tmp_path: Path) -> None:
    (tmp_path / "reprieve.toml").write_text(RULES, "utf-8")
    (judged,) = answer("classify", "550 over quota")
    assert (judged["kind"], judged["scope"], judged["rule"]) == ("transient", "tenant", "rule:code=550,message=quota")
    assert (judged["policy"], judged["retryAfter"], judged["maxAttempts"]) == ("email", 600.0, 5)
    assert answer("classify", "HTTP 503", "--dependency", "printer")[0]["kind"] == "permanent"
    assert answer("classify", "HTTP 503", "--dependency", "mail")[0]["kind"] == "transient"
    assert answer("classify", "550 over quota", "--rules", "http")[0]["kind"] == "transient"


def test_rules_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    (tmp_path / "reprieve.toml").write_text("[[rules]]\ncode = 5", "utf-8")
    assert "rules from reprieve.toml cannot be used" in complaint("classify", "503", status=2)


def test_a_dash_reads_errors_from_standard_input() -> None:
    judged = answer("classify", "-", input="421 busy\n\n550 5.1.1 no such user\n")
    assert [each["text"] for each in judged] == ["421 busy", "550 5.1.1 no such user"]


def test_whatever_the_text_holds_it_is_printed_harmlessly() -> None:
    shown = reprieve("classify", "\x1b[2J[red]550[/] \udcff nonsense").stdout
    assert shown.splitlines()[0].strip() == "[red]550[/] nonsense"
