"""Rules of operators and policies."""

from collections.abc import Callable

import pytest

from reprieve import rules
from reprieve.core.backoff import fixed
from reprieve.core.failure import Failure, read
from reprieve.core.policy import Policy
from reprieve.core.rule import Rule, parse_rules
from reprieve.errors import ContradictoryRules, InvalidDuration, InvalidRule

GREYLISTED = read("451 4.7.1 Greylisted", dependency="mx.example.org")


@pytest.mark.parametrize(
    ("rule", "failure", "matches"),
    [
        (Rule(code="451", kind="transient"), GREYLISTED, True),
        (Rule(code=451, kind="transient"), GREYLISTED, True),
        (Rule(code="4.7.*", kind="transient"), GREYLISTED, True),
        (Rule(code="45*", kind="transient"), GREYLISTED, True),
        (Rule(code="450", kind="transient"), GREYLISTED, False),
        (Rule(code="*", kind="transient"), read("no code here"), False),
        (Rule(message="grey", kind="transient"), GREYLISTED, True),
        (Rule(message="^grey", kind="transient"), GREYLISTED, False),
        (Rule(dependency="mx.*", kind="transient"), GREYLISTED, True),
        (Rule(dependency="ses", kind="transient"), GREYLISTED, False),
        (Rule(code="451", dependency="ses", kind="transient"), GREYLISTED, False),
        (Rule(exception=OSError, kind="permanent"), read(ConnectionResetError("x")), True),
        (Rule(exception="OSError", kind="permanent"), read(ConnectionResetError("x")), True),
        (Rule(exception=KeyError, kind="permanent"), read(ConnectionResetError("x")), False),
        (Rule(exception=KeyError, kind="permanent"), GREYLISTED, False),
    ],
)
def test_a_rule_matches_when_all_that_it_names_is_there(rule: Rule, failure: Failure, *, matches: bool) -> None:
    assert rule.matches(failure) is matches
    assert (rule.judge(failure) is not None) is matches


def test_exceptions_are_named_with_or_without_their_module() -> None:
    kind = type("Refused", (Exception,), {"__module__": "some.library"})
    failure = read(kind("x"))
    for name in ("Refused", "some.library.Refused", kind):
        assert Rule(exception=name, kind="permanent").matches(failure)
    assert not Rule(exception="other.library.Refused", kind="permanent").matches(failure)


def test_a_verdict_carries_what_the_rule_says() -> None:
    rule = Rule(code="451", message="grey", kind="throttled", scope="tenant", retry_after="2m")
    verdict = rule.judge(GREYLISTED)
    assert verdict is not None
    assert (verdict.kind, verdict.scope, verdict.code, verdict.retry_after) == (
        "throttled",
        "tenant",
        "451",
        120,
    )
    assert verdict.rule == "rule:code=451,message=grey"


def test_a_rule_may_say_that_a_dependency_is_unavailable() -> None:
    rule = Rule(message="starting up", kind="transient", scope="dependency", is_unavailable=True, max_attempts=2)
    verdict = rule.judge(Failure(message="the database system is starting up"))
    assert verdict is not None
    assert verdict.is_unavailable
    kept = rule.without(backoff=False, max_attempts=True)
    assert kept is not None
    assert kept.is_unavailable
    assert not Rule(message="x", kind="transient", scope="dependency").is_unavailable


def test_without_a_wait_of_its_own_the_failures_push_back_stays() -> None:
    verdict = Rule(code="451", kind="transient").judge(read("451 retry in 5 s"))
    assert verdict is not None
    assert verdict.retry_after == 5


def test_a_rule_never_shortens_a_push_back() -> None:
    rule = Rule(code="451", kind="transient", retry_after="5s")
    for text, expected in (("451 retry in 1 hour", 3_600), ("451", 5)):
        verdict = rule.judge(read(text))
        assert verdict is not None
        assert (verdict.retry_after, verdict.scope) == (expected, "job")


def test_the_code_of_an_exception_without_one_is_its_class() -> None:
    verdict = Rule(exception=KeyError, kind="permanent").judge(read(KeyError("x")))
    assert verdict is not None
    assert verdict.code == "KeyError"


def test_a_rule_that_only_treats_does_not_classify() -> None:
    assert Rule(code="451", backoff=fixed("1m")).judge(GREYLISTED) is None


def test_a_policy_finds_the_rule_that_treats_a_failure() -> None:
    verdict_only = Rule(code="451", kind="transient")
    slower = Rule(code="45*", backoff=fixed("1m"))
    longer = Rule(message="grey", max_attempts=20)
    policy = Policy(rules=[verdict_only, rules.smtp, slower, longer])
    assert policy.rule_for(GREYLISTED) is slower
    assert policy.rule_for(read("999 greylisted")) is longer
    assert policy.rule_for(read("550")) is None


def test_rules_are_read_from_configuration() -> None:
    parsed = parse_rules(
        [
            {"code": "550", "message": "quota", "kind": "transient", "scope": "tenant", "retry_after": "1h"},
            {"exception": "KeyError", "max_attempts": 2},
            {"code": "57P03", "kind": "transient", "scope": "dependency", "is_unavailable": True},
        ]
    )
    assert parsed == (
        Rule(code="550", message="quota", kind="transient", scope="tenant", retry_after=3_600),
        Rule(exception="KeyError", max_attempts=2),
        Rule(code="57P03", kind="transient", scope="dependency", is_unavailable=True),
    )
    assert [rule.is_unavailable for rule in parsed] == [False, False, True]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"kind": "permanent"}, "to match"),
        ({"code": "1"}, "has no effect"),
        ({"code": "1", "kind": "fatal"}, "kind of .* must be one of"),
        ({"code": "1", "kind": "transient", "scope": "world"}, "scope of .* must be one of"),
        ({"code": "1", "max_attempts": 0}, "1 or more"),
        ({"message": "(", "kind": "permanent"}, "regular expression"),
        ({"code": "1", "kind": "permanent", "colour": "red"}, "'colour'"),
        ({"code": "1", "scope": "tenant", "max_attempts": 2}, "no kind"),
        ({"code": "1", "retry_after": 5, "max_attempts": 2}, "no kind"),
        ({"code": "1", "max_attempts": "many"}, "must be "),
        ({"dependency": 5, "kind": "permanent"}, "must be "),
        ({"exception": 5, "kind": "permanent"}, "must be "),
        ({"code": "1", "kind": "transient", "is_unavailable": "yes"}, "must be "),
        (
            {"code": "1", "kind": "transient", "is_unavailable": True},
            'which needs kind="transient" and scope="dependency"',
        ),
        (
            {"code": "1", "kind": "throttled", "scope": "dependency", "is_unavailable": True},
            'which needs kind="transient"',
        ),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(table: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRule, match=words) as caught:
        parse_rules([table])
    assert caught.value.code == "invalid_rule"


def test_a_wait_that_is_no_duration_is_refused() -> None:
    with pytest.raises(InvalidDuration, match="retry_after"):
        parse_rules([{"code": "1", "kind": "transient", "retry_after": "5 minuts"}])


@pytest.mark.parametrize(
    "contradict",
    [
        lambda: Rule(code="1", kind="permanent", backoff=fixed("1s")),
        lambda: Rule(code="1", kind="permanent", max_attempts=2),
        lambda: Rule(code="1", kind="poison", retry_after="1s"),
        lambda: parse_rules([{"code": "1", "kind": "permanent"}, {"code": "1", "kind": "transient"}]),
        lambda: Policy(rules=[Rule(code="1", kind="transient"), Rule(code="1", max_attempts=3)]),
    ],
)
def test_rules_that_contradict_are_refused(contradict: Callable[[], object]) -> None:
    with pytest.raises(ContradictoryRules) as caught:
        contradict()
    assert caught.value.code == "contradictory_rules"


def test_the_same_rule_twice_is_no_contradiction() -> None:
    table: dict[str, object] = {"code": "1", "kind": "permanent"}
    assert len(parse_rules([table, table])) == 2
    assert Rule(code="1", kind="permanent", scope="tenant") != Rule(code="1", kind="permanent")
