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
        "scope": "job: only this job fails",
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
        ("no rule knows this", "retry in 1s to 2s, at most 10 attempts"),
    ],
)
def test_the_default_policy_decides(text: str, sentence: str) -> None:
    assert facts(text)["standard"] == sentence


def test_a_dependency_that_asks_to_slow_down_costs_no_attempt_and_parks_when_down() -> None:
    shown = facts("HTTP 429 Too Many Requests", "--dependency", "mail")
    assert shown["standard"] == "retry in 1s to 2s, without using up an attempt"
    assert shown["when down"] == "park until it is back, without using up an attempt"
    assert "when down" not in facts("HTTP 429 Too Many Requests")


def test_a_dependency_that_is_unavailable_parks_one_job_alone() -> None:
    shown = facts("[Errno 111] Connection refused", "--dependency", "mail")
    assert shown["unavailable"] == "the request was not served: even a single job is spared"
    assert shown["standard"] == "park for 1s, without using up an attempt"
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
    assert "a table must be one of smtp, ses, http, got 'ftp'" in complaint(
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


SHOP = """
from reprieve import Policy, Reprieve, presets, rules

app = Reprieve("sqlite:///jobs.db")


@app.task(policy=presets.webhook, dependency="smtp")
def send_welcome() -> None: ...


@app.task(policy=Policy(max_attempts=1, rules=[rules.http]), dependency=lambda: "other")
def notify() -> None: ...
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"shop_{tmp_path.name.replace('-', '_')}_classify"
    (tmp_path / f"{name}.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:app"


def test_the_preset_that_is_named_decides() -> None:
    assert facts("451 4.3.0 local error", "--policy", "email")["email"] == "retry in 0.75s to 1.25s, at most 5 attempts"
    assert "there is no preset 'emial'" in complaint("classify", "451", "--policy", "emial", status=2)


def test_the_policy_of_the_task_that_is_named_decides_with_its_dependency(shop: str) -> None:
    (judged,) = answer("classify", "451 4.7.1 greylisted", "--task", "send_welcome", "--app", shop)
    assert (judged["policy"], judged["maxAttempts"]) == (f"{shop[:-4]}.send_welcome", 8)
    assert judged["whenDown"] is not None
    (judged,) = answer("classify", "HTTP 503", "--task", "notify", "--app", shop)
    assert (judged["decision"], judged["rule"], judged["whenDown"]) == ("dead", "http:503", None)


def test_a_judge_has_to_be_one_that_exists(shop: str) -> None:
    assert "--policy and --task exclude" in complaint("classify", "x", "--policy", "email", "--task", "a", status=2)
    assert "no app is given" in complaint("classify", "x", "--task", "a", status=2)
    line = complaint("classify", "x", "--task", "send_welcme", "--app", shop, status=3)
    assert line.endswith("send_welcome?")


@pytest.mark.usefixtures("tmp_path")
def test_rules_of_the_configuration_go_before_a_preset_that_is_named() -> None:
    Path("reprieve.toml").write_text(RULES)
    (judged,) = answer("classify", "550 over quota", "--policy", "webhook")
    assert (judged["policy"], judged["kind"], judged["retryAfter"]) == ("webhook", "transient", 600.0)


def test_standard_input_without_a_line_is_an_error() -> None:
    result = reprieve("classify", "-", status=2, input="\n\n")
    assert "standard input is empty; give one error per line" in result.stderr
