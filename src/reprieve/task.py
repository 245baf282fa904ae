"""A task: a registered function that can be enqueued. Called directly it is still the plain function."""

from collections.abc import Callable, Coroutine
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from reprieve.call import Call, Options, Terms
from reprieve.core.suggestion import suggest
from reprieve.declaration import Declaration
from reprieve.errors import ValidationError
from reprieve.handle import App, JobHandle

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Enqueuer(App, Protocol):
    """What a task needs of its app."""

    def enqueue(self, call: Call[T]) -> JobHandle[T]:
        """Store one call, from code without a loop."""
        ...

    async def aenqueue(self, call: Call[T]) -> JobHandle[T]:
        """Store one call."""
        ...


class Task(Generic[P, R]):
    """A function that can be run now, by calling it, or later, by enqueueing it. Its jobs return an `R`."""

    def __init__(
        self, function: Callable[P, Any], declaration: Declaration, app: Enqueuer, options: Options | None = None
    ) -> None:
        """Wrap a function that was declared with an app."""
        self._function = function
        self.declaration = declaration
        self.app = app
        self._options: Options = options or {}
        update_wrapper(self, function)

    def __repr__(self) -> str:
        """Name the task."""
        return f"<Task {self.name}>"

    if not TYPE_CHECKING:  # a type checker reports these names as errors

        def __getattr__(self, name: str) -> NoReturn:
            """Raise an `AttributeError`; for a method of another system it names the method to use here."""
            # Uses no attribute of the task: while it is made or copied it has none yet.
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _METHODS_ELSEWHERE:
                message = f"a task has no method {name!r}; write {_METHODS_ELSEWHERE[name]}"
            raise AttributeError(message, name=name, obj=self)

    @property
    def name(self) -> str:
        """The name that jobs are stored under."""
        return self.declaration.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, as if it were no task."""
        result: R = self._function(*args, **kwargs)
        return result

    def using(self, **options: Unpack[Options]) -> Self:
        """Return the same task with options for the jobs that are enqueued through it.

        Raises a `ValidationError` for an option that a job does not have, and for an invalid value.
        """
        if unknown := options.keys() - Options.__annotations__.keys():
            message = "; ".join(f"a job has no option {option!r}; {_hint(option)}" for option in sorted(unknown))
            raise ValidationError(message)
        task = type(self)(self._function, self.declaration, self.app, {**self._options, **options})
        task._terms  # noqa: B018, SLF001 - computed here, so that invalid options are an error of this call
        return task

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Make a call that can be enqueued together with others."""
        return Call(self._terms, args, kwargs)

    @cached_property
    def _terms(self) -> Terms:
        return Terms(self.declaration, self._options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Store a call to be run by a worker, from code without a loop."""
        return self.app.enqueue(Call(self._terms, args, kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Store a call to be run by a worker."""
        return await self.app.aenqueue(Call(self._terms, args, kwargs))

    def job(self, job_id: str) -> JobHandle[R]:
        """Return the handle of a job of this task, by its id; nothing is read yet."""
        return JobHandle(self.app, job_id, self.declaration)


class AsyncTask(Task[P, R]):
    """A task whose function is async: called directly it returns a coroutine, and its jobs return an `R`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]  # to be awaited; all else is alike
        """Run the function here and now, as if it were no task."""
        coroutine: Coroutine[Any, Any, R] = self._function(*args, **kwargs)
        return coroutine


class TaskDecorator(Protocol):
    """What `@app.task(…)` returns: makes a task of a function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


_NAMES = list(Options.__annotations__)

_METHODS_ELSEWHERE = {
    "delay": ".enqueue(…), or await .aenqueue(…) in async code",
    "apply_async": ".enqueue(…), and its options before that: .using(delay=60, queue='mail').enqueue(…)",
    "s": ".call(…), and enqueue calls with app.enqueue_many([…])",
    "si": ".call(…), and enqueue calls with app.enqueue_many([…])",
    "signature": ".call(…), and enqueue calls with app.enqueue_many([…])",
    "send": ".enqueue(…), or await .aenqueue(…) in async code",
    "send_with_options": ".using(…).enqueue(…)",
    "defer": ".enqueue(…), or await .aenqueue(…) in async code",
    "kiq": ".enqueue(…), or await .aenqueue(…) in async code",
}
"""Methods of Celery, Dramatiq, Procrastinate and Taskiq, and what to write instead."""

_OPTIONS_ELSEWHERE = {
    "countdown": "delay=",
    "eta": "at=",
    "expires": "deadline=",
    "task_id": "key=",
    "job_id": "key=",
    "schedule_in": "delay=",
    "schedule_at": "at=",
    "queueing_lock": "key=",
    "max_retries": "max_attempts=",
    "retries": "max_attempts=",
    "time_limit": "timeout= of @app.task",
    "timeout": "timeout= of @app.task",
}
"""Options of other systems, and what to write instead."""


def _hint(option: str) -> str:
    """Return which option is probably meant, or which options there are."""
    if option in _OPTIONS_ELSEWHERE:
        return f"write {_OPTIONS_ELSEWHERE[option]}"
    return suggest(option, _NAMES, "options")
