"""Reprieve: background jobs that survive failure."""

from reprieve import errors
from reprieve.app import Reprieve
from reprieve.context import current_job
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
from reprieve.task import Receipt, Task

__version__ = "0.1.0"

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
    "Override",
    "PlusMinus",
    "Policy",
    "Receipt",
    "Reprieve",
    "ReprieveError",
    "Retry",
    "RetryPolicy",
    "Rule",
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
