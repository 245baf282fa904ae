"""Reprieve: background jobs that survive failure.

The names that most applications use are here; each is imported on first use, so that `reprieve --help` starts quickly.
The others have modules of their own: `reprieve.backoff`, `reprieve.errors`, `reprieve.config`, `reprieve.testing` and
`reprieve.compat`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reprieve import backoff, errors
    from reprieve.app import Reprieve
    from reprieve.call import Call
    from reprieve.config import Settings
    from reprieve.context import Running, current_job
    from reprieve.core import presets, rules
    from reprieve.core.classify import classify
    from reprieve.core.job import Job
    from reprieve.core.policy import Policy
    from reprieve.core.rule import Rule
    from reprieve.core.verdict import Verdict
    from reprieve.core.window import Window
    from reprieve.errors import ReprieveError
    from reprieve.handle import JobHandle
    from reprieve.signals import Cancel, Fail, Retry, Snooze
    from reprieve.task import AsyncTask, Task
    from reprieve.worker.middleware import Middleware, Proceed

    __version__: str
else:
    from importlib import import_module

    _MODULES = {
        "backoff": "reprieve.backoff",
        "errors": "reprieve.errors",
        "presets": "reprieve.core.presets",
        "rules": "reprieve.core.rules",
    }
    _HOMES = {
        "AsyncTask": "reprieve.task",
        "Call": "reprieve.call",
        "Cancel": "reprieve.signals",
        "Fail": "reprieve.signals",
        "Job": "reprieve.core.job",
        "JobHandle": "reprieve.handle",
        "Middleware": "reprieve.worker.middleware",
        "Policy": "reprieve.core.policy",
        "Proceed": "reprieve.worker.middleware",
        "Reprieve": "reprieve.app",
        "ReprieveError": "reprieve.errors",
        "Retry": "reprieve.signals",
        "Rule": "reprieve.core.rule",
        "Running": "reprieve.context",
        "Settings": "reprieve.config",
        "Snooze": "reprieve.signals",
        "Task": "reprieve.task",
        "Verdict": "reprieve.core.verdict",
        "Window": "reprieve.core.window",
        "__version__": "reprieve.version",
        "classify": "reprieve.core.classify",
        "current_job": "reprieve.context",
    }

    def __getattr__(name: str) -> object:
        """Import a public name from its module, and keep it."""
        if name in _MODULES:
            found = import_module(_MODULES[name])
        elif name in _HOMES:
            found = getattr(import_module(_HOMES[name]), name)
        else:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """List the public names, whether or not they have been imported."""
        return sorted({*globals(), *__all__})


__all__ = [
    "AsyncTask",
    "Call",
    "Cancel",
    "Fail",
    "Job",
    "JobHandle",
    "Middleware",
    "Policy",
    "Proceed",
    "Reprieve",
    "ReprieveError",
    "Retry",
    "Rule",
    "Running",
    "Settings",
    "Snooze",
    "Task",
    "Verdict",
    "Window",
    "backoff",
    "classify",
    "current_job",
    "errors",
    "presets",
    "rules",
]
