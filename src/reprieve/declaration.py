"""A declaration: the function and the options of a task, as workers and producers need them."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict, cast, get_args

from reprieve.codec import Codec
from reprieve.core import values
from reprieve.core.duration import Duration, seconds
from reprieve.core.headers import require_tags
from reprieve.core.job import HIGH, LOW, NORMAL
from reprieve.core.policy import Policy
from reprieve.core.suggestion import nearest, suggest
from reprieve.errors import InvalidDependency, InvalidTask, ValidationError
from reprieve.importing import MAIN, module_of

Executor: TypeAlias = Literal["async", "thread", "process"]
"""Where a task runs: on the worker's loop, in one of its threads, or in a process of its own."""

Dependency: TypeAlias = str | Callable[..., object]
"""What a task calls: a name, or a function of the job's arguments that returns one."""


class TaskOptions(TypedDict, total=False):
    """The options of a task."""

    name: str
    """The name that its jobs are stored under; the function's module and name unless given."""
    queue: str
    policy: Policy | str | None
    """A policy, or the name of a preset or of a policy in the settings."""
    dependency: Dependency
    priority: int
    timeout: Duration | None
    executor: Executor | None
    result_ttl: Duration
    """How long its result is kept; results are not kept unless given."""
    tags: Sequence[str]
    sla: Duration
    """How long after its enqueue a job should have ended."""
    events: bool
    """Whether enqueues, starts and successes of its jobs are events, besides all that goes wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A function with the options of its task."""

    name: str
    function: Callable[..., object]
    module: str
    """The module that has to be imported for the task to exist; `__main__` if no other process can import it."""
    is_importable: bool
    """Whether a worker can find the task: by its module, or by a name that it was given."""
    codec: Codec
    executor: Executor
    is_async: bool
    """Whether the function has to be awaited."""
    queue: str = "default"
    policy: Policy | None = None
    """None: the default policy of the app."""
    dependency: Dependency = ""
    priority: int = NORMAL
    timeout: float | None = None
    """Seconds that an attempt may take; None: the setting `stuck_after`."""
    result_ttl: float = 0.0
    """Seconds for which a result is kept; 0 keeps none."""
    tags: tuple[str, ...] = ()
    sla: float | None = None
    """Seconds after its enqueue in which a job should have ended."""
    events: bool = False
    """Whether the jobs tell all: their enqueues, starts and successes are events."""

    def dependency_of(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Return the dependency of a call; computed once, at enqueue."""
        if isinstance(self.dependency, str):
            return self.dependency
        try:
            found = self.dependency(*args, **kwargs)
        except Exception as error:
            message = f"the dependency of {self.name} cannot be computed: {type(error).__name__}: {error}"
            raise InvalidDependency(message) from error
        if not isinstance(found, str):
            message = f"the function of the dependency of {self.name} must return a name, got {values.shown(found)}"
            raise InvalidDependency(message)
        return values.plain(found)


def require_text(value: object, what: str, of: str, error: type[ValidationError]) -> str:
    """Return a name, as a plain str, if it is text and not empty; else raise the error."""
    if not isinstance(value, str) or not value:
        message = f"{what} {of} must be text, got {values.shown(value)}"
        raise error(message)
    return values.name(value, f"{what} {of}")


def require_priority(value: object, of: str, error: type[ValidationError]) -> int:
    """Return a priority, as a plain int, if it is one; else raise the error."""
    if not isinstance(value, int) or isinstance(value, bool) or not HIGH <= value <= LOW:
        message = f"priority {of} must be {HIGH}–{LOW}, {HIGH} first, got {values.shown(value)}"
        raise error(message)
    return int(value)


def require_dependency(value: object, of: str) -> Dependency:
    """Return a dependency, a plain str or a function; raise `InvalidDependency` for anything else."""
    if isinstance(value, str):
        return values.name(value, f"dependency {of}", may_be_empty=True)
    if callable(value):
        return value
    message = f"dependency {of} must be a name or a function of the arguments, got {values.shown(value)}"
    raise InvalidDependency(message)


def declare(function: Callable[..., object], options: TaskOptions, policies: Mapping[str, Policy]) -> Declaration:
    """Check the options of a task. By default an async function runs on the event loop, any other in a thread.

    `policies` are those that the task may name.
    """
    # Since Python 3.14 a partial passes for a routine.
    if isinstance(function, functools.partial) or not inspect.isroutine(function):
        raise InvalidTask(_no_function(function))
    module = module_of(function)
    name = f"{module}.{function.__qualname__}"
    if unknown := [option for option in options if option not in TaskOptions.__annotations__]:
        raise InvalidTask(_unknown(name, unknown[0], options[unknown[0]]))  # type: ignore[literal-required]  # any name
    if "name" in options:
        name = require_text(options["name"], "name", f"of task {name}", InvalidTask)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = f"task {name} is a generator; a task must return its result"
        raise InvalidTask(message)
    is_async = inspect.iscoroutinefunction(function)
    timeout = options.get("timeout")
    limit = None if timeout is None else seconds(timeout, f"timeout of task {name}")
    if limit == 0:
        message = f"timeout of task {name} must be more than 0"
        raise InvalidTask(message)
    codec = Codec(function)
    if (unusable := codec.unusable_parameter()) is not None:
        parameter, reason = unusable
        message = f"parameter {parameter} of task {name} cannot be read back from JSON, whatever its value: {reason}"
        raise InvalidTask(message)
    return Declaration(
        name=name,
        function=function,
        module=module,
        is_importable=module != MAIN or "name" in options,
        codec=codec,
        executor=_executor(options.get("executor"), name, is_async=is_async),
        is_async=is_async,
        queue=require_text(options.get("queue", "default"), "queue", f"of task {name}", InvalidTask),
        policy=named_policy(options.get("policy"), f"of task {name}", policies),
        dependency=require_dependency(options.get("dependency", ""), f"of task {name}"),
        priority=require_priority(options.get("priority", NORMAL), f"of task {name}", InvalidTask),
        timeout=limit,
        result_ttl=seconds(options.get("result_ttl", 0.0), f"result_ttl of task {name}"),
        tags=require_tags(options.get("tags", ()), f"tags of task {name}"),
        sla=seconds(options["sla"], f"sla of task {name}") if "sla" in options else None,
        events=values.flag(options.get("events", False), f"events of task {name}", InvalidTask),
    )


def _no_function(thing: object) -> str:
    hint = f"write @app.task(queue={thing!r})" if isinstance(thing, str) else "@app.task goes on top of one"
    return f"{thing!r} is not a function; {hint}"


def _executor(wanted: object, name: str, *, is_async: bool) -> Executor:
    default = "async" if is_async else "thread"
    executor = values.one_of(
        default if wanted is None else wanted, get_args(Executor), f"executor of task {name}", InvalidTask
    )
    if (executor == "async") is not is_async and executor != "process":
        message = f"task {name} is {'an async' if is_async else 'a plain'} function and cannot run as {executor!r}"
        raise InvalidTask(message)
    return cast("Executor", executor)


def named_policy(policy: object, of: str, policies: Mapping[str, Policy]) -> Policy | None:
    """Return a policy that is given as itself or by its name; None if none is given. Raises `InvalidTask` otherwise."""
    if policy is None or isinstance(policy, Policy):
        return policy
    if isinstance(policy, str) and policy in policies:
        return policies[policy]
    meant = nearest(policy, policies) if isinstance(policy, str) else None
    hint = f"the names are {', '.join(policies)}" if meant is None else f"did you mean {meant}?"
    message = f"policy {of} must be a Policy or the name of one, got {policy!r}; {hint}"
    raise InvalidTask(message)


_OF_POLICIES = {
    "max_attempts": "max_attempts={0!r}",
    "retries": "retries={0!r}",
    "max_retries": "retries={0!r}",
    "backoff": "backoff=…",
    "retry_backoff": 'backoff=Exponential("1s")',
    "retry_delay": "backoff=Exponential({0!r})",
    "default_retry_delay": "backoff=Exponential({0!r})",
    "max_retry_delay": 'backoff=Exponential("1s", cap={0!r})',
    "jitter": 'backoff=Exponential("1s", jitter={0!r})',
    "rules": "rules=…",
    "window": "window=…",
    "deadline": "deadline={0!r}",
    "max_crashes": "max_crashes={0!r}",
    "max_parked": "max_parked={0!r}",
}
"""Options that belong to the policy of a task, and how they are written there."""

_OF_JOBS = (
    *("tenant", "key", "key_ttl", "delay", "at", "group", "connection"),
    *("headers", "user", "linked", "traceparent", "tracestate"),
)


def _unknown(name: str, option: str, value: object) -> str:
    """Return a sentence about an option that a task does not have, and where it belongs."""
    message = f"@app.task has no option {option!r} (task {name}); "
    if option in _OF_POLICIES:
        return f"{message}it belongs to the policy: policy=Policy({_OF_POLICIES[option].format(value)})"
    if option in _OF_JOBS:
        return f"{message}it belongs to a job: .using({option}=…).enqueue(…)"
    return message + suggest(option, TaskOptions.__annotations__, "options")
