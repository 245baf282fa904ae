"""Which factory opens the URLs of a scheme: one of this package, or an entry point of another package.

A package registers a store with an entry point that is named like its scheme, in the group `reprieve.stores`:

    [project.entry-points."reprieve.stores"]
    mystore = "mypackage.store:open_store"

The factory takes the URL and the `OpenOptions`. Outboxes have the group `reprieve.outboxes`, and what
`reprieve doctor` and `reprieve migrate` use has the group `reprieve.diagnostics`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, Literal, TypeAlias, TypeVar, cast

from reprieve.core.record import Record
from reprieve.core.redact import mask_url
from reprieve.errors import BrokenPlugin, InvalidUrl, MissingExtra, StoreNotFound
from reprieve.stores.protocol import MAX_PAYLOAD_BYTES

T = TypeVar("T")


class OpenOptions(Record):
    """How to open what a URL names; `open_store` says what each option means. A factory may ignore any."""

    durability: Literal["full", "fast", "strict"] = "full"
    largest_payload: int = MAX_PAYLOAD_BYTES
    """For outboxes, which check payloads themselves. Those of stores are checked before the store sees them."""
    shared: bool = False
    must_exist: bool = False
    may_wait: bool = True


Factory: TypeAlias = Callable[[str, OpenOptions], T]


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,40}")
"""A text before `://` that is something else may be a part of a password."""


class BuiltIn(Record):
    """A factory of this package."""

    schemes: tuple[str, ...]
    target: str
    """`module:function`, imported when it is first used."""
    example: str
    extra: str = ""
    """The extra of this package that installs what the module imports."""


class Factories(Generic[T]):
    """The factories of stores, of outboxes or of diagnostics, by URL scheme."""

    def __init__(self, what: str, group: str, built_in: Sequence[BuiltIn]) -> None:
        """Take what the factories make, for messages, the group of their entry points, and those of this package."""
        self._what = what
        self._group = group
        self._examples = [
            f"{one.example} (pip install 'reprieve[{one.extra}]')" if one.extra else one.example for one in built_in
        ]
        self._built_in: Mapping[str, BuiltIn] = {scheme: one for one in built_in for scheme in one.schemes}

    def open(self, url: str, options: OpenOptions) -> T:
        """Return what a URL names.

        Raises `InvalidUrl` for a scheme without a factory, `MissingExtra` for one whose extra is not installed, and
        `BrokenPlugin` for an entry point that cannot be loaded.
        """
        scheme = url.partition("://")[0]
        built_in = self._built_in.get(scheme)
        factory = self._plugin(scheme, url) if built_in is None else self._load(built_in)
        return factory(url, options)

    def _load(self, built_in: BuiltIn) -> Factory[T]:
        module, _, function = built_in.target.partition(":")
        try:
            return cast("Factory[T]", getattr(import_module(module), function))
        except ModuleNotFoundError as error:
            message = (
                f"the {built_in.extra} {self._what} needs {error.name}, which is not installed; "
                f"pip install 'reprieve[{built_in.extra}]'"
            )
            raise MissingExtra(message) from error

    def _plugin(self, scheme: str, url: str) -> Factory[T]:
        plugins = {plugin.value: plugin for plugin in entry_points(group=self._group, name=scheme)}
        if not plugins:
            raise self._unknown(scheme, url)
        if len(plugins) > 1:
            message = f"several packages register {scheme}://: {', '.join(map(_name, plugins.values()))}; keep one"
            raise BrokenPlugin(message)
        (plugin,) = plugins.values()
        try:
            return cast("Factory[T]", plugin.load())
        except Exception as error:
            message = f"{_name(plugin)} cannot be loaded: {type(error).__name__}: {error}; repair or remove its package"
            raise BrokenPlugin(message) from error

    def _unknown(self, scheme: str, url: str) -> InvalidUrl:
        dialect, plus, _ = scheme.partition("+")
        if plus and dialect in self._built_in:
            # SQLAlchemy names its driver there.
            return InvalidUrl(f"{mask_url(url)!r} names a driver; write {dialect}:// without it")
        others = sorted({f"{plugin.name}://" for plugin in entry_points(group=self._group)})
        forms = ", ".join([*self._examples, *others])
        name = scheme if _SCHEME.fullmatch(scheme) else "of its scheme"
        return InvalidUrl(
            f"no {self._what} for {mask_url(url)!r}; write {forms}, "
            f"or install a package with an entry point {name} in the group {self._group}"
        )


def require_store(schema_version: int | None, missing: str) -> None:
    """Raise `StoreNotFound`, which says what is missing, where no store has a schema version."""
    if not schema_version:
        message = (
            f"{missing}; the first enqueue, the first worker or reprieve migrate up creates the store, "
            "or name the app (--app) or the store (--store) that you mean"
        )
        raise StoreNotFound(message)


def _name(plugin: EntryPoint) -> str:
    package = f" of the package {plugin.dist.name} {plugin.dist.version}" if plugin.dist is not None else ""
    return f"the entry point {plugin.name} = {plugin.value}{package}"
