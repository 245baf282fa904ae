"""Values by type: what people and programs supply is a plain value, or an error that names it."""

import math
from collections.abc import Callable
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction

import pytest

from reprieve.core.backoff import Bounded, Capped, Equal, Exponential, Formula, Full, PlusMinus, fast_then_slow, fixed
from reprieve.core.cause import cause_of
from reprieve.core.classify import judge
from reprieve.core.decide import Conditions, decide
from reprieve.core.duration import MAX_DURATION_SECONDS, clamp, seconds
from reprieve.core.failure import Failure, read
from reprieve.core.job import Job
from reprieve.core.move import Retry
from reprieve.core.outcome import Failed
from reprieve.core.policy import Override, Policy, require_policy
from reprieve.core.presets import named
from reprieve.core.rate import Rate
from reprieve.core.rule import Rule
from reprieve.core.values import (
    MAX_NAME_CHARS,
    MAX_SHOWN_CHARS,
    MAX_WHOLE,
    flag,
    name,
    number,
    one_of,
    shown,
    text,
    to_float,
    whole,
)
from reprieve.core.verdict import Verdict
from reprieve.core.window import Window
from reprieve.errors import (
    InvalidBackoff,
    InvalidName,
    InvalidPolicy,
    InvalidRule,
    ReprieveError,
    UnknownPreset,
    ValidationError,
)


class Old(str, Enum):  # noqa: UP042 - the older form, which formats as its name
    MAIL = "mail"


class New(StrEnum):
    MAIL = "mail"


class Level(IntEnum):
    FIRST = 1


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("member", [Old.MAIL, New.MAIL])
def test_an_enum_of_texts_counts_as_its_value(member: str) -> None:
    for plain in (text(member, "queue", ValidationError), one_of(member, ("mail",), "queue", ValidationError)):
        assert plain == "mail"
        assert type(plain) is str


def test_an_enum_of_numbers_counts_as_its_number() -> None:
    plain = whole(Level.FIRST, "priority", ValidationError)
    assert plain == 1
    assert type(plain) is int


@pytest.mark.parametrize("value", [True, 1.0, "1", None, Decimal(1), -1, [], b"1"])
def test_what_is_not_a_whole_number_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match=r"^slots must be a whole number of 0 or more, got "):
        whole(value, "slots", ValidationError)


def test_a_whole_number_that_no_store_can_hold_is_refused() -> None:
    assert whole(MAX_WHOLE, "slots", ValidationError) == MAX_WHOLE
    with pytest.raises(
        ValidationError, match=rf"^slots must be a whole number from 0 to {MAX_WHOLE}, got {MAX_WHOLE + 1}"
    ):
        whole(MAX_WHOLE + 1, "slots", ValidationError)


@pytest.mark.parametrize("value", [2, 2.0, Decimal(2), Fraction(4, 2), Level.FIRST + 1])
def test_a_number_of_any_type_is_a_plain_float(value: object) -> None:
    plain = number(value, "weight", ValidationError, 0, 10)
    assert plain == 2
    assert type(plain) is float


@pytest.mark.parametrize("value", [True, "2", b"2", None, math.nan, math.inf, -1, 10**400, [], 1j, Decimal("sNaN")])
def test_what_is_not_a_number_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match=r"^weight must be a number from 0 to 10, got "):
        number(value, "weight", ValidationError, 0, 10)


def test_text_flags_and_words_are_told_apart() -> None:
    assert flag(value=True, what="force", error=ValidationError) is True
    with pytest.raises(ValidationError, match=r"^force must be True or False, got 1$"):
        flag(1, "force", ValidationError)
    with pytest.raises(ValidationError, match=r"^queue must be text, got None$"):
        text(None, "queue", ValidationError)
    with pytest.raises(ValidationError, match=r"^kind must be one of a, b, got \['a'\]$"):
        one_of(["a"], ("a", "b"), "kind", ValidationError)


def test_a_name_is_printable_and_not_too_long() -> None:
    assert name(Old.MAIL, "queue") == "mail"
    assert name("", "tenant", may_be_empty=True) == ""
    for wrong_name in ("", "a\0b", "a\ud800", "n" * (MAX_NAME_CHARS + 1), None):
        with pytest.raises(InvalidName, match=rf"^queue must be 1–{MAX_NAME_CHARS} printable characters, got "):
            name(wrong_name, "queue")


def test_an_error_shows_any_value_in_short() -> None:
    assert shown(Mute()) == "a Mute"
    assert len(shown("x" * 10_000)) == MAX_SHOWN_CHARS


def test_a_number_that_is_none_counts_as_no_wait() -> None:
    assert math.isnan(to_float("5"))
    assert clamp("5") == 0.0  # type: ignore[arg-type]  # that is the point
    assert seconds(Decimal("1.5")) == 1.5  # type: ignore[arg-type]  # as above


def wrong(make: Callable[..., object], **options: object) -> Callable[[], object]:
    return lambda: make(**options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (wrong(Policy, max_attempts=5.0), "max_attempts must be a whole number of 1 or more, got 5.0"),
        (wrong(Policy, max_attempts=True), "max_attempts must be a whole number of 1 or more, got True"),
        (wrong(Policy, max_attempts=10**30), "max_attempts must be a whole number from 1 to"),
        (wrong(Policy, retries=2.5), "retries must be a whole number of 0 or more, got 2.5"),
        (wrong(Policy, max_crashes=1.5), "max_crashes must be a whole number of 1 or more, got 1.5"),
        (wrong(Policy, backoff=5), "a backoff must be a Backoff or a function of the failures, got 5"),
        (wrong(Policy, rules=Rule(code=5, kind="transient")), "rules of a policy must be a list of rules"),
        (wrong(Policy, rules=["smtp"]), "rules of a policy must be a list of rules"),
        (wrong(Policy, rules="smtp"), "rules of a policy must be a list of rules"),
        (wrong(Policy, window="22:00-06:00"), "window of a policy must be a Window"),
        (wrong(Policy, deadline=True), "deadline must be a duration"),
        (wrong(Override, max_attempts=3.0), "max_attempts must be a whole number of 1 or more, got 3.0"),
        (wrong(Override, retry_delay=[]), "retry_delay must be a duration"),
        (wrong(Verdict, kind="fatal"), "kind of a verdict must be one of transient"),
        (wrong(Verdict, kind="transient", scope=None), "scope of a verdict must be one of job"),
        (wrong(Verdict, kind="transient", code=503), "code of a verdict must be text, got 503"),
        (wrong(Verdict, kind="transient", rule=None), "rule of a verdict must be text, got None"),
        (wrong(Verdict, kind="transient", is_unavailable="no"), "is_unavailable of a verdict must be True or False"),
        (
            wrong(Verdict, kind="transient", retry_after=math.nan),
            "retry_after of a verdict must be a number of seconds",
        ),
        (wrong(Verdict, kind="transient", retry_after="soon"), "retry_after of a verdict must be a duration"),
        (wrong(Rule, code=5.0, kind="transient"), "code of a rule must be text, got 5.0"),
        (wrong(Rule, code=True, kind="transient"), "code of a rule must be a whole number"),
        (
            wrong(Rule, exception=5, kind="transient"),
            "exception of a rule must be an exception class or its name, got 5",
        ),
        (wrong(Rule, exception=str, kind="transient"), "exception of a rule must be an exception class"),
        (wrong(Rule, message=b"x", kind="transient"), "message of a rule must be text, got b'x'"),
        (wrong(Rule, dependency=None, kind="transient"), "dependency of a rule must be text, got None"),
        (wrong(Rule, code=5, kind=""), "kind of a rule must be one of transient"),
        (wrong(Rule, code=5, kind="transient", scope=["job"]), "scope of a rule must be one of job"),
        (wrong(Rule, code=5, kind="transient", is_unavailable=1), "is_unavailable of a rule must be True or False"),
        (wrong(Rule, code=5, backoff=5), 'backoff of a rule must be a Backoff such as Exponential("2s"), got 5'),
        (wrong(Rule, code=5, max_attempts=2.5), "max_attempts of a rule must be a whole number of 1 or more, got 2.5"),
        (wrong(Exponential, base="1s", factor="2"), "factor must be a number from 1 to 1e+06, got '2'"),
        (wrong(Exponential, base="1s", jitter="full"), "jitter fraction must be a number from 0 to 1, got 'full'"),
        (wrong(Exponential, base="1s", jitter=True), "jitter fraction must be a number from 0 to 1, got True"),
        (wrong(Exponential, base="1s", jitter=Full), "jitter must be a number, or a jitter such as Full(), got <class"),
        (wrong(PlusMinus, fraction=0.5, cap_last="yes"), "cap_last must be True or False, got 'yes'"),
        (wrong(Formula, function=5), "a backoff must be a Backoff or a function of the failures, got 5"),
        (wrong(Capped, inner=5, cap="1s"), "backoff inside Capped must be a Backoff"),
        (
            wrong(fast_then_slow, fast="1s", times=2.5, slow="1m"),
            "times must be a whole number from 1 to 10000, got 2.5",
        ),
        (wrong(fixed("1s").delay, failures=1.5), "failures must be a whole number of 1 or more, got 1.5"),
        (wrong(named, name=["email"]), "there is no preset ['email']"),
        (wrong(Window, closed=5), "span of a window must be text, got 5"),
        (wrong(Window, open=["09:00-17:00", None]), "span of a window must be text, got None"),
        (wrong(Window, closed="22:00-06:00", zone=5), "zone must be text, got 5"),
        (wrong(require_policy, value="email", what="policy"), "policy must be a Policy, as in Policy(max_attempts=5)"),
        (wrong(Rate, count=1.5, window=60), "count of a rate must be a whole number of 0 or more, got 1.5"),
        (wrong(Rate, count=1, window="1m"), "a rate must be 1 or more in 64 ms to 31 days, got 1 in nan s"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_its_name(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ReprieveError) as caught:
        make()
    assert str(caught.value).startswith(words)


def test_what_is_kept_of_a_value_is_plain() -> None:
    rule = Rule(code=Old.MAIL, exception=Old.MAIL, dependency=New.MAIL, kind="transient")
    assert {type(part) for part in (rule.code, rule.exception, rule.dependency)} == {str}
    assert str(rule) == "rule:code=mail,exception=mail,dependency=mail"
    override = Override(max_attempts=Level.FIRST, retry_delay="5s", max_retry_delay=Decimal(60))  # type: ignore[arg-type]  # any duration
    assert (override.max_attempts, override.retry_delay, override.max_retry_delay) == (1, 5.0, 60.0)
    assert {type(override.max_attempts), type(override.retry_delay), type(override.max_retry_delay)} == {int, float}
    verdict = Verdict(kind="transient", code=Old.MAIL, retry_after=Decimal(3))  # type: ignore[arg-type]  # as above
    assert (verdict.code, type(verdict.code), verdict.retry_after) == ("mail", str, 3.0)
    assert type(Exponential("1s", factor=2).factor) is float
    assert Policy(rules=iter([rule])).rules == (rule,)  # type: ignore[arg-type]  # any iterable


@pytest.mark.parametrize(("wait", "kept"), [(-5, 0.0), (math.inf, MAX_DURATION_SECONDS), ("5m", 300.0)])
def test_a_push_back_that_a_rule_computes_is_bounded(wait: float, kept: float) -> None:
    assert Verdict(kind="transient", retry_after=wait).retry_after == kept


class Table:
    """Rules of an application that return whatever they are given."""

    def __init__(self, verdict: object) -> None:
        self.verdict = verdict

    def judge(self, _: Failure) -> Verdict:
        return self.verdict() if callable(self.verdict) else self.verdict  # type: ignore[return-value]  # that is the point


@pytest.mark.parametrize("verdict", [lambda: Verdict(kind="permanent", code=503), "permanent", True, 0])  # type: ignore[arg-type]  # as above
def test_a_rule_that_returns_something_else_is_reported_and_skipped(verdict: object) -> None:
    reported: list[tuple[str, type[Exception]]] = []
    judged = judge(
        read("timeout"),
        [Table(verdict), Table(Verdict(kind="throttled", code="x"))],
        lambda part, error: reported.append((part, type(error))),
    )
    assert (judged.kind, reported) == ("throttled", [("rules", InvalidRule)])


class Jitter:
    """A jitter of an application that returns whatever it is given."""

    def __init__(self, wait: object) -> None:
        self.wait = wait

    def spread(self, raw: float, cap: float, u: float) -> float:
        del raw, cap, u
        return self.wait  # type: ignore[return-value]  # that is the point


class Own(Exponential):
    """A backoff of an application that returns no number."""

    def delay(self, failures: int, u: float | None = None, previous: float | None = None) -> float:
        del failures, u, previous
        return "soon"  # type: ignore[return-value]  # that is the point


def retry_after_failure(policy: Policy) -> tuple[Retry, list[type[Exception]]]:
    reported: list[type[Exception]] = []
    job = Job(id="j", task="send", state="running", created_at=0, due_at=0, attempt=1)
    conditions = Conditions(now=0, u=0.5, on_error=lambda _, error: reported.append(type(error)))
    decision = decide(job, Failed(failure=read("x"), verdict=Verdict(kind="transient")), policy, conditions)
    assert isinstance(decision, Retry)
    return decision, reported


@pytest.mark.parametrize("wait", [Decimal("7.5"), Fraction(15, 2)])
def test_a_wait_of_any_type_of_number_is_kept_as_a_float(wait: float) -> None:
    for backoff in (
        Formula(lambda _: wait),
        Exponential("1s", jitter=Jitter(wait)),
        Capped(Formula(lambda _: wait), 60),
    ):
        decision, reported = retry_after_failure(Policy(backoff=backoff))
        assert (decision.delay, type(decision.delay), decision.due_at, reported) == (7.5, float, 7_500, [])


@pytest.mark.parametrize("wait", ["soon", None, math.nan, True, [], Decimal("NaN")])
def test_a_wait_that_is_no_number_is_reported_and_the_standard_backoff_used(wait: float) -> None:
    for backoff in (Formula(lambda _: wait), Exponential("1s", jitter=Jitter(wait)), Own("1s")):
        decision, reported = retry_after_failure(Policy(backoff=backoff))
        assert reported == [InvalidBackoff]
        assert 0 < decision.delay <= 2.0


def test_a_message_without_a_printable_character_still_has_a_reason() -> None:
    assert cause_of(Failure(message="\0\x1b"), Verdict(kind="transient")).reason == "unknown error"


def test_equal_and_bounded_jitter_take_any_number() -> None:
    assert Exponential(2, jitter=Equal()).delay(1, 0.0) == 1.0
    assert Bounded(Decimal("0.5")).fraction == 0.5  # type: ignore[arg-type]  # any number


def test_invalid_values_have_the_codes_of_their_class() -> None:
    assert require_policy(named("email"), "policy") is named("email")
    for make, kind in ((wrong(Policy, max_attempts=0), InvalidPolicy), (wrong(named, name=5), UnknownPreset)):
        with pytest.raises(kind):
            make()
