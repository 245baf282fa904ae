"""A rule: which failures it matches, how it classifies them, and how a policy treats them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NoReturn, Protocol, get_args

from reprieve.core.backoff import Backoff, require_backoff
from reprieve.core.duration import Duration, seconds
from reprieve.core.failure import Failure, class_name
from reprieve.core.values import flag, one_of, plain, shown, text, whole
from reprieve.core.verdict import Kind, Scope, Verdict
from reprieve.errors import ContradictoryRules, InvalidRule


class Rules(Protocol):
    """A classification table: any object or module with a `judge` function."""

    def judge(self, failure: Failure, /) -> Verdict | None:
        """Return the verdict on a failure, or None when this table does not know it."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class Rule:
    """Matches failures by code, exception, message and dependency (all that are given), and says how to treat them.

    `code` and `dependency` are patterns with `*`; `exception` is a class or its name, with or without its
    module, and matches subclasses; `message` is a regular expression that ignores case.
    `kind`, `scope`, `retry_after` and `is_unavailable` classify; `backoff` and `max_attempts` replace those of the
    policy. `is_unavailable` says that the dependency refused service before it read the request, so that even a
    single job is spared such failures; see `Verdict`.
    """

    code: str
    exception: str
    message: str
    dependency: str
    kind: Kind | None
    scope: Scope | None
    retry_after: float | None
    is_unavailable: bool
    backoff: Backoff | None
    max_attempts: int | None

    def __init__(  # noqa: PLR0913 - four matchers and six effects: all keywords, most left out
        self,
        *,
        code: str | int = "",
        exception: type[BaseException] | str = "",
        message: str = "",
        dependency: str = "",
        kind: Kind | None = None,
        scope: Scope | None = None,
        retry_after: Duration | None = None,
        is_unavailable: bool = False,
        backoff: Backoff | None = None,
        max_attempts: int | None = None,
    ) -> None:
        """Accept exception classes, bare codes and durations as people write them."""
        facts: dict[str, object] = {
            "code": _code(code),
            "exception": _exception(exception),
            "message": text(message, "message of a rule", InvalidRule),
            "dependency": text(dependency, "dependency of a rule", InvalidRule),
            "kind": None if kind is None else one_of(kind, get_args(Kind), "kind of a rule", InvalidRule),
            "scope": None if scope is None else one_of(scope, get_args(Scope), "scope of a rule", InvalidRule),
            "retry_after": None if retry_after is None else seconds(retry_after, "retry_after"),
            "is_unavailable": flag(is_unavailable, "is_unavailable of a rule", InvalidRule),
            "backoff": None if backoff is None else require_backoff(backoff, "backoff of a rule", InvalidRule),
            "max_attempts": None
            if max_attempts is None
            else whole(max_attempts, "max_attempts of a rule", InvalidRule, 1),
        }
        for field, value in facts.items():
            object.__setattr__(self, field, value)
        self._require_consistent()

    @property
    def matchers(self) -> tuple[str, str, str, str]:
        """What the rule matches by: rules with equal matchers match the same failures."""
        return self.code, self.exception, self.message, self.dependency

    def matches(self, failure: Failure) -> bool:
        """Whether the failure has everything that this rule matches by."""
        return (
            (not self.code or any(fnmatchcase(code, self.code) for code in (failure.code, failure.enhanced) if code))
            and (not self.exception or any(_same_class(name, self.exception) for name in failure.types))
            and (not self.dependency or fnmatchcase(failure.dependency, self.dependency))
            and (not self.message or re.search(self.message, failure.message, re.IGNORECASE) is not None)
        )

    def judge(self, failure: Failure) -> Verdict | None:
        """Return this rule's verdict, or None when it does not match or does not classify."""
        if self.kind is None or not self.matches(failure):
            return None
        return Verdict(
            kind=self.kind,
            scope=self.scope or "job",
            code=failure.code or failure.type,
            # A rule may lengthen a push-back, never shorten it.
            retry_after=max(
                (wait for wait in (failure.retry_after, self.retry_after) if wait is not None), default=None
            ),
            rule=str(self),
            is_unavailable=self.is_unavailable,
        )

    def without(self, *, backoff: bool, max_attempts: bool) -> "Rule | None":
        """Return this rule without its backoff or max_attempts; None when nothing is left of it."""
        kept_backoff = None if backoff else self.backoff
        kept_attempts = None if max_attempts else self.max_attempts
        if self.kind is None and kept_backoff is None and kept_attempts is None:
            return None
        facts = {name: getattr(self, name) for name in Rule.__dataclass_fields__}
        return Rule(**{**facts, "backoff": kept_backoff, "max_attempts": kept_attempts})

    def __str__(self) -> str:
        """Name the rule by what it matches."""
        return "rule:" + ",".join(f"{name}={value}" for name, value in self._matchers().items() if value)

    def _matchers(self) -> dict[str, str]:
        names = ("code", "exception", "message", "dependency")
        return {name: getattr(self, name) for name in names}

    def _require_consistent(self) -> None:
        if not any(self._matchers().values()):
            _refuse("a rule needs a code, an exception, a message or a dependency to match")
        if self.kind is None and self.backoff is None and self.max_attempts is None:
            _refuse(f"{self} has no effect; give it a kind, a backoff or max_attempts")
        if self.kind is None and (self.scope is not None or self.retry_after is not None):
            _refuse(f"{self} has a scope or a retry_after but no kind; give it a kind")
        if self.is_unavailable and (self.scope != "dependency" or self.kind != "transient"):
            _refuse(f'{self} has is_unavailable, which needs kind="transient" and scope="dependency"')
        try:
            re.compile(self.message)
        except re.error as error:
            _refuse(f"message of a rule must be a regular expression, got {self.message!r}: {error}")
        if self.kind in ("permanent", "poison") and (self.backoff or self.max_attempts or self.retry_after):
            text = f"{self} is {self.kind} but also says how to retry; keep one of the two"
            raise ContradictoryRules(text)


_CONFIGURABLE: dict[str, tuple[type, ...]] = {
    "code": (str, int),
    "exception": (str,),
    "message": (str,),
    "dependency": (str,),
    "kind": (str,),
    "scope": (str,),
    "retry_after": (str, int, float),
    "is_unavailable": (bool,),
    "max_attempts": (int,),
}


def _types(name: str) -> str:
    return " or ".join(kind.__name__ for kind in _CONFIGURABLE[name])


def parse_rules(tables: Iterable[Mapping[str, object]]) -> tuple[Rule, ...]:
    """Return the rules of a configuration file, whose values are strings, numbers and booleans."""
    parsed = []
    for table in tables:
        for name, value in table.items():
            if name not in _CONFIGURABLE:
                _refuse(f"a rule has no field {name!r}; the fields are {', '.join(_CONFIGURABLE)}")
            if not isinstance(value, _CONFIGURABLE[name]):
                _refuse(f"{name} of a rule must be {_types(name)}, got {value!r}")
        parsed.append(Rule(**table))  # type: ignore[arg-type]  # checked above, name by name
    require_agreement(parsed)
    return tuple(parsed)


def require_agreement(rules: Iterable[object]) -> None:
    """Raise `ContradictoryRules` if two rules match the same failures and differ in effect."""
    seen: dict[tuple[str, ...], Rule] = {}
    for rule in rules:
        if isinstance(rule, Rule) and seen.setdefault(rule.matchers, rule) != rule:
            text = f"two rules have the same matchers and different effects: {rule}; keep one of them"
            raise ContradictoryRules(text)


def _code(code: object) -> str:
    if isinstance(code, int):
        return str(whole(code, "code of a rule", InvalidRule))
    return text(code, "code of a rule", InvalidRule)


def _exception(exception: object) -> str:
    if isinstance(exception, type) and issubclass(exception, BaseException):
        return class_name(exception)
    if not isinstance(exception, str):
        _refuse(f"exception of a rule must be an exception class or its name, got {shown(exception)}")
    return plain(exception)


def _same_class(name: str, wanted: str) -> bool:
    return name == wanted or name.rpartition(".")[2] == wanted


def _refuse(message: str) -> NoReturn:
    raise InvalidRule(message)
