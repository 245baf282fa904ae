"""A task: a registered function that can be enqueued. Called directly it is still the plain function."""

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Generic, ParamSpec, Protocol, Self, TypeVar, Unpack

from reprieve.call import Call, Options, Receipt, Terms
from reprieve.declaration import Declaration
from reprieve.errors import ValidationError

P = ParamSpec("P")
R = TypeVar("R")


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
        return Call(self._terms, args, kwargs)

    @cached_property
    def _terms(self) -> Terms:
        return Terms(self.declaration, self._options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Store a call to be run by a worker, from code without a loop."""
        return self.app.enqueue(self.call(*args, **kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Receipt:
        """Store a call to be run by a worker."""
        return await self.app.aenqueue(self.call(*args, **kwargs))


_NAMES = ", ".join(Options.__annotations__)
