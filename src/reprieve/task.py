"""A task: a registered function that can be enqueued. Called directly it is still the plain function."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import update_wrapper
from typing import Generic, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack

from reprieve.core.duration import Duration, seconds
from reprieve.core.policy import Override
from reprieve.core.record import Record
from reprieve.declaration import Declaration, Dependency
from reprieve.errors import ValidationError

P = ParamSpec("P")
R = TypeVar("R")


class Options(TypedDict, total=False):
    """What can be said about one job. It never shares a namespace with the task's own arguments."""

    tenant: str
    """Whose job it is."""
    queue: str
    """Another queue than the task's."""
    delay: Duration
    """How long to wait before the first attempt."""
    at: datetime
    """When the first attempt may start, instead of a delay; with a time zone."""
    priority: int
    """1 is first, 9 last."""
    key: str
    """At most one job of this task and tenant has it: enqueued again, the job that exists is the answer."""
    key_ttl: Duration
    """How long the key is remembered after its job has ended."""
    deadline: Duration
    """The job must not start later than this after its enqueue."""
    dependency: Dependency
    """Another dependency than the task's."""
    group: str
    """A limit that this job shares with others of its group."""
    max_attempts: int
    retry_delay: Duration
    max_retry_delay: Duration
    """Retry settings for this job alone."""
    connection: object
    """A connection with an open transaction: the job exists if that transaction commits, and not otherwise.
    None is no connection."""


class Receipt(Record):
    """What an enqueue is answered with."""

    id: str
    is_new: bool = True
    """False when a job with the same key exists: `id` is that job's."""


class Call:
    """One call of a task that has not been enqueued: its arguments, already written, and its options."""

    __slots__ = ("declaration", "dependency", "options", "payload")

    def __init__(
        self, declaration: Declaration, options: Options, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """Write the arguments, and find out what the call depends on."""
        self.declaration = declaration
        self.options = options
        self.payload = declaration.codec.encode(args, kwargs)
        dependency = options.get("dependency")
        if dependency is None:
            self.dependency = declaration.dependency_of(args, kwargs)
        else:
            self.dependency = replace(declaration, dependency=dependency).dependency_of(args, kwargs)

    @property
    def override(self) -> Override | None:
        """The retry settings of this job alone; None when there are none."""
        options = self.options
        if options.keys().isdisjoint(_RETRY_SETTINGS):
            return None
        return Override(
            max_attempts=options.get("max_attempts"),
            retry_delay=seconds(options["retry_delay"], "retry_delay") if "retry_delay" in options else None,
            max_retry_delay=(
                seconds(options["max_retry_delay"], "max_retry_delay") if "max_retry_delay" in options else None
            ),
        )


_RETRY_SETTINGS = frozenset({"max_attempts", "retry_delay", "max_retry_delay"})


class Enqueuer(Protocol):
    """Whoever stores calls as jobs: the app."""

    def enqueue(self, call: Call) -> Receipt:
        """Store one call, from code without a loop."""
        ...

    async def aenqueue(self, call: Call) -> Receipt:
        """Store one call."""
        ...


class Task(Generic[P, R]):
    """A function that can be run now, by calling it, or later, by enqueueing it."""

    def __init__(
        self, function: Callable[P, R], declaration: Declaration, app: Enqueuer, options: Options | None = None
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

    @property
    def name(self) -> str:
        """The name that jobs are stored under."""
        return self.declaration.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, as if it were no task."""
        return self._function(*args, **kwargs)

    def using(self, **options: Unpack[Options]) -> Self:
        """Answer the same task with options for the jobs that are enqueued through it."""
        if unknown := options.keys() - Options.__annotations__.keys():
            message = f"a job has no option {', '.join(sorted(map(repr, unknown)))}; its options are {_NAMES}"
            raise ValidationError(message)
        return type(self)(self._function, self.declaration, self.app, {**self._options, **options})

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Make a call that can be enqueued together with others."""
        return Call(self.declaration, self._options, args, kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Store a call to be run by a worker, from code without a loop."""
        return self.app.enqueue(self.call(*args, **kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Store a call to be run by a worker."""
        return await self.app.aenqueue(self.call(*args, **kwargs))


_NAMES = ", ".join(Options.__annotations__)
