"""Backoffs and jitters: how long a job waits before its next attempt.

`Policy(backoff=Exponential("1s", cap="60s", jitter=0.25))` waits 1 s, 2 s, 4 s … up to 60 s, each ± 25 %.
"""

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

__all__ = [
    "Backoff",
    "Bounded",
    "Decorrelated",
    "Equal",
    "Exponential",
    "Formula",
    "Full",
    "Jitter",
    "Linear",
    "PlusMinus",
    "Steps",
    "fast_then_slow",
    "fixed",
]
