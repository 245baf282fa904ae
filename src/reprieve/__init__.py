"""Reprieve: background jobs that survive failure.

Each name is imported when it is first asked for: a command line that answers `--help` needs none of them.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from reprieve import errors
    from reprieve.app import Reprieve
    from reprieve.call import Receipt
    from reprieve.context import Running, current_job
    from reprieve.core import presets, rules
    from reprieve.core.backoff import (
        Backoff,
        Bounded,
        Decorrelated,
        Equal,
        Exponential,
        Formula,
        Full,
        Jitter,
        Linear,
        PlusMinus,
        Steps,
        fast_then_slow,
        fixed,
    )
    from reprieve.core.change import Change
    from reprieve.core.classify import classify
    from reprieve.core.job import Job
    from reprieve.core.policy import Override, Policy
    from reprieve.core.rule import Rule
    from reprieve.core.verdict import Verdict
    from reprieve.core.window import Window
    from reprieve.errors import ReprieveError
    from reprieve.mechanism import (
        RetryPolicy,
        calculate_backoff_delay,
        calculate_next_retry,
        calculate_round_robin_priority,
        handle_failed_job,
        is_retryable_error,
        retry_failed_job,
        should_retry,
        validate_dlq_entry,
    )
    from reprieve.signals import Cancel, Fail, Retry, Snooze
    from reprieve.task import Task
    from reprieve.worker.middleware import Middleware, Proceed
else:
    from importlib import import_module

    _HOMES = {
        "Backoff": "reprieve.core.backoff",
        "Bounded": "reprieve.core.backoff",
        "Cancel": "reprieve.signals",
        "Change": "reprieve.core.change",
        "Decorrelated": "reprieve.core.backoff",
        "Equal": "reprieve.core.backoff",
        "Exponential": "reprieve.core.backoff",
        "Fail": "reprieve.signals",
        "Formula": "reprieve.core.backoff",
        "Full": "reprieve.core.backoff",
        "Jitter": "reprieve.core.backoff",
        "Job": "reprieve.core.job",
        "Linear": "reprieve.core.backoff",
        "Middleware": "reprieve.worker.middleware",
        "Override": "reprieve.core.policy",
        "PlusMinus": "reprieve.core.backoff",
        "Policy": "reprieve.core.policy",
        "Proceed": "reprieve.worker.middleware",
        "Receipt": "reprieve.call",
        "Reprieve": "reprieve.app",
        "ReprieveError": "reprieve.errors",
        "Retry": "reprieve.signals",
        "RetryPolicy": "reprieve.mechanism",
        "Rule": "reprieve.core.rule",
        "Running": "reprieve.context",
        "Snooze": "reprieve.signals",
        "Steps": "reprieve.core.backoff",
        "Task": "reprieve.task",
        "Verdict": "reprieve.core.verdict",
        "Window": "reprieve.core.window",
        "calculate_backoff_delay": "reprieve.mechanism",
        "calculate_next_retry": "reprieve.mechanism",
        "calculate_round_robin_priority": "reprieve.mechanism",
        "classify": "reprieve.core.classify",
        "current_job": "reprieve.context",
        "errors": "reprieve.errors",
        "fast_then_slow": "reprieve.core.backoff",
        "fixed": "reprieve.core.backoff",
        "handle_failed_job": "reprieve.mechanism",
        "is_retryable_error": "reprieve.mechanism",
        "presets": "reprieve.core.presets",
        "retry_failed_job": "reprieve.mechanism",
        "rules": "reprieve.core.rules",
        "should_retry": "reprieve.mechanism",
        "validate_dlq_entry": "reprieve.mechanism",
    }

    def __getattr__(name: str) -> object:
        """Import a public name from its home, and keep it."""
        if name not in _HOMES:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        home = import_module(_HOMES[name])
        globals()[name] = found = home if name in ("errors", "presets", "rules") else getattr(home, name)
        return found

    def __dir__() -> list[str]:
        """List the public names, whether or not anybody has asked for them."""
        return sorted({*globals(), *__all__})


__all__ = [
    "Backoff",
    "Bounded",
    "Cancel",
    "Change",
    "Decorrelated",
    "Equal",
    "Exponential",
    "Fail",
    "Formula",
    "Full",
    "Jitter",
    "Job",
    "Linear",
    "Middleware",
    "Override",
    "PlusMinus",
    "Policy",
    "Proceed",
    "Receipt",
    "Reprieve",
    "ReprieveError",
    "Retry",
    "RetryPolicy",
    "Rule",
    "Running",
    "Snooze",
    "Steps",
    "Task",
    "Verdict",
    "Window",
    "calculate_backoff_delay",
    "calculate_next_retry",
    "calculate_round_robin_priority",
    "classify",
    "current_job",
    "errors",
    "fast_then_slow",
    "fixed",
    "handle_failed_job",
    "is_retryable_error",
    "presets",
    "retry_failed_job",
    "rules",
    "should_retry",
    "validate_dlq_entry",
]
