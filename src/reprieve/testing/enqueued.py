"""What was enqueued: to look at, and to be sure of."""

import inspect
from dataclasses import dataclass
from typing import Any

from reprieve.app import Reprieve
from reprieve.call import Call
from reprieve.core.duration import spell
from reprieve.core.headers import NO_HEADERS
from reprieve.core.job import Job
from reprieve.errors import UndecodablePayload
from reprieve.json_data import load
from reprieve.portal import Portal
from reprieve.stores.paginate import find_all
from reprieve.stores.protocol import Filter
from reprieve.task import Task

SHOWN = 20
"""Jobs that a failed assertion lists at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A job, as the call that it was."""

    job: Job
    arguments: dict[str, object]
    """Every argument by its parameter's name, those left to their defaults as well."""

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.job.task

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        return self.job.tenant

    def __repr__(self) -> str:
        """Write the call, its options, and what has become of it."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        job, wait = self.job, (self.job.due_at - self.job.created_at) / 1_000
        said = [f"{option}={value!r}" for option, value in _worth_telling(job) if value]
        said += [f'delay="{spell(wait)}"'] if wait > 0 else []
        return f"<{self.task}({arguments}) {' '.join([*said, job.state])}>"


def enqueued(app: Reprieve, task: Task[..., Any] | None = None) -> list[Enqueued]:
    """Return every job that was enqueued, of one task or of all, the oldest first, whatever has become of it.

    Jobs of the same moment come in the store's own order. It may be called anywhere, also from coroutines.
    """
    jobs = _in_portal(app, Filter(tasks=() if task is None else (task.name,)))
    return [
        Enqueued(job=job, arguments=_arguments_of(app, job)) for job in sorted(jobs, key=lambda job: job.created_at)
    ]


def assert_enqueued(
    app: Reprieve, wanted: Call[object] | Task[..., Any], *, times: int | None = None
) -> list[Enqueued]:
    """Be sure that a call was enqueued, at least once or exactly so many times; answer the jobs.

    `send.using(tenant="acme").call(42)` is a call with these arguments and, as far as they are given, these options;
    `send` alone is any call of the task.
    """
    everything = enqueued(app)
    found = [one for one in everything if _is_meant(app, one, wanted)]
    if len(found) == times or (times is None and found):
        return found
    expected = "at least once" if times is None else f"{times} times"
    lines = [f"enqueued {len(found)} times, expected {expected}:", f"  {_described(app, wanted)}"]
    lines += ["all that was enqueued:"] if everything else ["nothing was enqueued at all"]
    lines += [f"  {one!r}" for one in everything[:SHOWN]]
    lines += [f"  and {len(everything) - SHOWN} more"] if len(everything) > SHOWN else []
    raise AssertionError("\n".join(lines))


def _in_portal(app: Reprieve, wanted: Filter) -> list[Job]:
    portal = Portal()
    try:
        return portal.run(find_all(app.store, wanted, app.clock.now()))
    finally:
        portal.close()


def _described(app: Reprieve, wanted: Call[object] | Task[..., Any]) -> str:
    if isinstance(wanted, Task):
        return f"<{wanted.name}(…)>"
    job = app.producer.job_of(wanted)
    arguments = ", ".join(f"{name}={value!r}" for name, value in _arguments_of(app, job).items())
    options = "".join(f" {name}={value!r}" for name, value in wanted.terms.options.items())
    return f"<{job.task}({arguments}){options}>"


def _is_meant(app: Reprieve, one: Enqueued, wanted: Call[object] | Task[..., Any]) -> bool:
    if isinstance(wanted, Task):
        return one.task == wanted.name
    if one.task != wanted.terms.model.task:
        return False
    expected = app.producer.job_of(wanted)
    return one.arguments == _arguments_of(app, expected) and all(
        _said(one.job, option) == _said(expected, option) for option in wanted.terms.options
    )


def _said(job: Job, option: str) -> object:
    """Return what a job was told by an option."""
    match option:
        case "delay":
            return job.due_at - job.created_at
        case "at":
            return job.due_at
        case "deadline":
            return None if job.deadline_at is None else job.deadline_at - job.created_at
        case "max_attempts" | "retry_delay" | "max_retry_delay":
            return None if job.override is None else getattr(job.override, option)
        case "connection":
            return None
        case "sla":
            sla_at = (job.headers or NO_HEADERS).sla_at
            return None if sla_at is None else sla_at - job.created_at
        case "headers":
            return (job.headers or NO_HEADERS).own
        case "tags" | "user" | "linked" | "traceparent" | "tracestate":
            return getattr(job.headers or NO_HEADERS, option)
        case _:
            return getattr(job, option)


def _worth_telling(job: Job) -> list[tuple[str, object]]:
    return [
        (option, _said(job, option)) for option in ("tenant", "key", "dependency", "group", "tags", "user", "headers")
    ]


def _arguments_of(app: Reprieve, job: Job) -> dict[str, object]:
    """Return the arguments of a job by their names, however they were passed."""
    declaration = app.registry.find(job.task)
    if declaration is None:
        return {"payload": load(job.payload)}
    try:
        args, kwargs = declaration.codec.decode(job.payload)
    except UndecodablePayload:
        return {"payload": load(job.payload)}
    bound = inspect.signature(declaration.function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments
