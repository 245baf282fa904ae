"""A declaration: what a task was declared with, as the worker and the enqueue need to know it."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from reprieve.codec import Codec
from reprieve.core.duration import Duration, seconds
from reprieve.core.job import HIGH, LOW, NORMAL
from reprieve.core.policy import Policy
from reprieve.errors import InvalidDependency, InvalidTask

Executor: TypeAlias = Literal["async", "thread", "process"]
"""Where a task runs: on the worker's loop, in one of its threads, or in a process of its own."""

Dependency: TypeAlias = str | Callable[..., object]
"""What a task calls: a name, or a function of the job's arguments that answers one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A function, and everything that was said about it."""

    name: str
    function: Callable[..., object]
    codec: Codec
    executor: Executor
    is_async: bool
    """Whether the function has to be awaited."""
    queue: str = "default"
    policy: Policy | None = None
    """None leaves it to the app's default."""
    dependency: Dependency = ""
    priority: int = NORMAL
    timeout: float | None = None
    """Seconds that an attempt may take; None leaves it to `stuck_after`."""
    result_ttl: float = 0.0
    """Seconds for which a result is kept; 0 keeps none."""

    @property
    def module(self) -> str:
        """The module that has to be imported for the task to exist."""
        return self.function.__module__

    def dependency_of(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Answer what this call depends on; asked once, at enqueue."""
        if isinstance(self.dependency, str):
            return self.dependency
        try:
            name = self.dependency(*args, **kwargs)
        except Exception as error:
            message = f"the dependency of {self.name} could not be told: {type(error).__name__}: {error}"
            raise InvalidDependency(message) from error
        if not isinstance(name, str):
            message = f"the dependency of {self.name} is {name!r}; its function must answer a name"
            raise InvalidDependency(message)
        return name


def declare(  # noqa: PLR0913 - everything that can be said about a task, all keywords
    function: Callable[..., object],
    *,
    name: str = "",
    queue: str = "default",
    policy: Policy | None = None,
    dependency: Dependency = "",
    priority: int = NORMAL,
    timeout: Duration | None = None,
    executor: Executor | None = None,
    result_ttl: Duration = 0.0,
) -> Declaration:
    """Check what is said about a task; an async function runs on the loop, any other in a thread, unless told."""
    # Since Python 3.14 a partial passes for a routine.
    if isinstance(function, functools.partial) or not inspect.isroutine(function):
        message = f"{function!r} is no function; @app.task goes on top of one"
        raise InvalidTask(message)
    name = name or f"{function.__module__}.{function.__qualname__}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = f"task {name} yields, and nobody would go through what it yields; write a function that returns"
        raise InvalidTask(message)
    is_async = inspect.iscoroutinefunction(function)
    executor = executor or ("async" if is_async else "thread")
    if executor not in get_args(Executor):
        message = f"task {name} cannot run in {executor!r}; executors are {', '.join(get_args(Executor))}"
        raise InvalidTask(message)
    if (executor == "async") is not is_async and executor != "process":
        message = f"task {name} is {'an async' if is_async else 'a plain'} function and cannot run as {executor!r}"
        raise InvalidTask(message)
    if not HIGH <= priority <= LOW:
        message = f"priority {priority} of task {name} is none; give one from {HIGH}, the first, to {LOW}"
        raise InvalidTask(message)
    limit = None if timeout is None else seconds(timeout, "timeout")
    if limit == 0:
        message = f"a timeout of 0 leaves task {name} no time to run"
        raise InvalidTask(message)
    return Declaration(
        name=name,
        function=function,
        codec=Codec(function),
        executor=executor,
        is_async=is_async,
        queue=queue,
        policy=policy,
        dependency=dependency,
        priority=priority,
        timeout=limit,
        result_ttl=seconds(result_ttl, "result_ttl"),
    )
