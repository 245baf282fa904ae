"""Lifespans: what a process opens once before its jobs run, and closes when they have ended.

A lifespan is an async context manager. It yields a resource, which tasks find by its type.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeAlias, TypeVar

from reprieve.errors import InvalidLifespan, ResourceUnavailable

T = TypeVar("T")

Lifespan: TypeAlias = (
    Callable[[], AsyncIterator[object]] | Callable[[], AbstractAsyncContextManager[object, bool | None]]
)
"""An async generator function that yields once, or anything without arguments that returns an async context manager."""

_FORM = "write `async def resources(): async with Pool() as pool: yield pool`"
_HOW = (
    "a worker enters them by itself before it takes a job, and so do drain and inline of reprieve.testing; "
    "elsewhere write `async with app.lifespan_context():`"
)


class Scope:
    """The resources of one event loop, open while at least one block uses them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin with none."""
        self.loop = loop
        self.resources: list[object] = []
        self.is_open = False
        self.users = 0
        self.lock = asyncio.Lock()
        self.stack = AsyncExitStack()


class Lifespans:
    """The lifespans of one app, and the resources that are open now."""

    def __init__(self) -> None:
        """Begin with none."""
        self._functions: list[Lifespan] = []
        self._scopes: list[Scope] = []

    def add(self, function: Lifespan) -> None:
        """Add a lifespan; they are entered in order and left in reverse order. Raises `InvalidLifespan`."""
        _check(function)
        self._functions.append(function)

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """Enter every lifespan in order, and leave them in reverse order.

        A nested block in the same event loop shares the resources of the outer one. Each event loop has its own
        resources, since a connection that was opened in one loop cannot be used in another.
        """
        scope = self._scope()
        scope.users += 1
        try:
            async with scope.lock:
                if not scope.is_open:
                    await self._open(scope)
            yield
        except BaseException as error:
            # The lifespans see the exception: one that holds a transaction must not commit it.
            if not await self._leave(scope, error):
                raise
        else:
            await self._leave(scope, None)

    def find(self, kind: type[T]) -> T:
        """Return the resource of exactly this type, or else of a subclass.

        Raises `ResourceUnavailable` when there is none or more than one, or when no lifespan was entered here.
        """
        resources = self._resources()
        fitting = [one for one in resources if type(one) is kind] or [one for one in resources if isinstance(one, kind)]
        if len(fitting) == 1:
            return fitting[0]
        known = ", ".join(_name(type(one)) for one in resources) or "nothing"
        if fitting:
            message = (
                f"{len(fitting)} resources are a {_name(kind)}; the lifespans yield {known}: "
                "name a class that only one of them has"
            )
        else:
            message = f"no resource is a {_name(kind)}; the lifespans of this app yield {known}"
        raise ResourceUnavailable(message)

    def forget(self) -> None:
        """Drop what a forked process cannot use."""
        self._scopes = []

    def _scope(self) -> Scope:
        loop = asyncio.get_running_loop()
        for scope in self._scopes:
            if scope.loop is loop:
                return scope
        scope = Scope(loop)
        self._scopes.append(scope)
        return scope

    async def _open(self, scope: Scope) -> None:
        try:
            for function in self._functions:
                resource = await scope.stack.enter_async_context(_context_of(function))
                if resource is not None:
                    scope.resources.append(resource)
        except BaseException:
            scope.resources.clear()
            await scope.stack.aclose()
            raise
        scope.is_open = True

    async def _leave(self, scope: Scope, error: BaseException | None) -> bool:
        """Leave the lifespans if no other block uses them; return whether one of them has suppressed the error."""
        scope.users -= 1
        if scope.users:
            return False
        # First: no resource is found in it any more, and a block that begins now opens another.
        self._scopes = [other for other in self._scopes if other is not scope]
        if error is None:
            await scope.stack.aclose()
            return False
        return bool(await scope.stack.__aexit__(type(error), error, error.__traceback__))

    def _resources(self) -> list[object]:
        """Return the resources of the running loop; in a thread without a loop, those that were opened last."""
        if not self._functions:
            message = f"this app has no lifespan; {_FORM}, with @app.lifespan above it"
            raise ResourceUnavailable(message)
        if not self._scopes:
            message = f"the lifespans of this app have not been entered in this process; {_HOW}"
            raise ResourceUnavailable(message)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._scopes[-1].resources
        ours = (scope for scope in self._scopes if scope.loop is loop)
        return next(ours, self._scopes[-1]).resources


def name_of(function: Lifespan) -> str:
    """Return the name of a lifespan for messages."""
    return getattr(function, "__qualname__", None) or repr(function)


def _context_of(function: Lifespan) -> AbstractAsyncContextManager[object, bool | None]:
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)()
    context = function()
    if isinstance(context, AbstractAsyncContextManager):
        return context
    message = f"lifespan {name_of(function)} returned a {type(context).__name__}, not an async context manager; {_FORM}"
    raise InvalidLifespan(message)


def _check(function: object) -> None:
    """Raise `InvalidLifespan` for a function that could not be entered."""
    if not callable(function):
        message = f"{function!r} is not a function; {_FORM}"
        raise InvalidLifespan(message)
    name = getattr(function, "__qualname__", repr(function))
    inner = inspect.unwrap(function)
    if inspect.iscoroutinefunction(inner) or (inspect.isgeneratorfunction(inner)):
        what = "returns instead of yielding" if inspect.iscoroutinefunction(inner) else "is not async"
        message = f"lifespan {name} {what}; {_FORM}"
        raise InvalidLifespan(message)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    needed = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if needed:
        message = f"lifespan {name} takes arguments ({', '.join(needed)}), and is called without any; {_FORM}"
        raise InvalidLifespan(message)


def _name(kind: type) -> str:
    return kind.__qualname__
