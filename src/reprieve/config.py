"""Settings: from the environment, then from the files of the project, then the defaults; each with its source."""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec.structs import force_setattr

from reprieve.core import presets, values
from reprieve.core.duration import Duration, seconds
from reprieve.core.policy import Override, Policy, resolve
from reprieve.core.presets import Profile
from reprieve.core.record import Record
from reprieve.core.rule import Rule, parse_rules
from reprieve.core.suggestion import nearest, suggest
from reprieve.errors import InvalidDuration, InvalidSetting, ReprieveError

FILE = "reprieve.toml"
PROJECT = "pyproject.toml"
PREFIX = "REPRIEVE_"

MIN_SIMILARITY = 0.8
"""How similar a variable must be to a setting to count as misspelt; others may belong to the application."""


class Settings(Record):
    """The settings of an installation. Durations are in seconds."""

    app: str = ""
    """The app that commands use, as `module:name`; empty: none."""
    url: str = "sqlite:///reprieve.db"
    outbox: str = ""
    """The database whose transactions send jobs to a store that cannot join them, such as Redis; empty: none."""
    profile: Profile = "production"
    policy: str = "standard"
    """The preset for tasks without a policy."""
    durability: Literal["full", "fast", "strict"] = "full"
    shared: bool = False
    """Whether the SQLite file has tables of the application's own."""
    largest_payload: int = 256 * 1024
    processes: int = 0
    """Worker processes; 0: one for each core."""
    slots: int = 20
    """Jobs that each worker process runs at once."""
    lease: float = 15.0
    heartbeat: float = 5.0
    stuck_after: float = 1_800.0
    unknown_after: float = 3_600.0
    """How long a job waits for a worker that knows its task, while there is none, before it is dead."""
    grace: float = 30.0
    """How long a worker that is told to stop lets running jobs finish."""
    succeeded_kept: int = 1_000
    """How many succeeded jobs of each queue are kept."""
    succeeded_kept_for: float = 86_400.0
    events_kept: int = 100_000
    """How many events a partition of a Redis store keeps at most; other stores keep all for their time."""
    events_kept_for: float = 7 * 86_400.0
    rules: tuple[Rule, ...] = ()
    """Classification rules of the operator; they come before all others."""
    policies: dict[str, Policy] = msgspec.field(default_factory=dict)
    """Policies by task; they replace those in the code."""

    def __post_init__(self) -> None:
        """Raise `InvalidSetting` for values out of range, and for values that contradict each other."""
        for name in (
            "lease",
            "heartbeat",
            "stuck_after",
            "unknown_after",
            "grace",
            "succeeded_kept_for",
            "events_kept_for",
        ):
            self._put(name, _seconds(getattr(self, name), name))
        for name in ("lease", "heartbeat", "stuck_after", "unknown_after", "events_kept_for"):
            if not getattr(self, name):
                message = f"{name} must be more than 0 s, got 0 s"
                raise InvalidSetting(message)
        for name, least in _LEAST.items():
            self._put(name, values.whole(getattr(self, name), name, InvalidSetting, least))
        for name in ("app", "url", "outbox", "policy"):
            self._put(name, values.text(getattr(self, name), name, InvalidSetting))
        self._put("profile", values.one_of(self.profile, get_args(Profile), "profile", InvalidSetting))
        self._put("durability", values.one_of(self.durability, _DURABILITIES, "durability", InvalidSetting))
        values.flag(self.shared, "shared", InvalidSetting)
        if not all(isinstance(rule, Rule) for rule in self.rules):
            message = f"rules must be a tuple of Rules, got {values.shown(self.rules)}"
            raise InvalidSetting(message)
        if not all(isinstance(policy, Policy) for policy in self.policies.values()):
            message = f"policies must be Policies by the names of their tasks, got {values.shown(self.policies)}"
            raise InvalidSetting(message)
        if self.heartbeat * 2 > self.lease:
            message = f"heartbeat must be at most half of the lease of {self.lease:g} s, got {self.heartbeat:g} s"
            raise InvalidSetting(message)

    def _put(self, name: str, value: object) -> None:
        """Keep the plain value of a setting."""
        force_setattr(self, name, value)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and the source of each."""

    settings: Settings
    sources: dict[str, str]


def load(environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Loaded:
    """Read the settings: `REPRIEVE_*` overrides `reprieve.toml`, and that `[tool.reprieve]` in `pyproject.toml`.

    `REPRIEVE_CONFIG` names one file to read instead of both.
    """
    environ = os.environ if environ is None else environ
    found: dict[str, tuple[Any, str]] = {}
    for path in _files(environ.get(PREFIX + "CONFIG", ""), folder or Path()):
        found |= {name: (value, str(path)) for name, value in _read(path).items()}
    for name in _PARSERS:
        variable = PREFIX + name.upper()
        if variable in environ and name not in _TABLES:
            found[name] = (environ[variable], variable)
    _refuse_misspelt(environ)
    for name, (_, source) in found.items():
        if name not in _PARSERS:
            message = f"{source} has an unknown setting {name!r}; {suggest(name, _PARSERS, 'settings')}"
            raise InvalidSetting(message)
    parsed = {name: _parse(name, value, source) for name, (value, source) in found.items() if name != "policies"}
    if "policies" in found:
        # A preset may have a variant for development: the profile decides.
        profile = parsed.get("profile", "production")
        parsed["policies"] = _parse("policies", *found["policies"], partial(_policies, profile=profile))
    sources = {name: found[name][1] if name in found else "default" for name in _PARSERS}
    return Loaded(Settings(**parsed), sources)


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    """Raise `InvalidSetting` for a variable that is a misspelt setting."""
    for variable in environ:
        name = variable.removeprefix(PREFIX).lower()
        if variable.startswith(PREFIX) and name not in (*_PARSERS, "config"):
            meant = nearest(name, (*_PARSERS, "config"), MIN_SIMILARITY)
            if meant is not None:
                message = f"{variable} is not a setting; did you mean {PREFIX}{meant.upper()}?"
                raise InvalidSetting(message)


def _files(named: str, folder: Path) -> list[Path]:
    """Return the files to read; later files override earlier ones."""
    if named:
        return [Path(named)]
    return [path for path in (folder / PROJECT, folder / FILE) if path.exists()]


def _read(path: Path) -> dict[str, Any]:
    """Return the settings of a file; in a `pyproject.toml` they are under `[tool.reprieve]`."""
    try:
        text = path.read_text("utf-8")
        if path.name == PROJECT and "reprieve" not in text:
            # Not parsed if Reprieve is not in it: an error in it must not keep an app from starting.
            return {}
        document = tomllib.loads(text)
    except FileNotFoundError:
        message = f"{path} does not exist; fix {PREFIX}CONFIG, or unset it"
        raise InvalidSetting(message) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"{path} cannot be read: {error}"
        raise InvalidSetting(message) from error
    if path.name != PROJECT:
        return document
    table = document.get("tool", {})
    table = table.get("reprieve", {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict):
        message = f"{path} has a tool.reprieve that is not a table; write the settings under [tool.reprieve]"
        raise InvalidSetting(message)
    return table


def _parse(name: str, value: object, source: str, parse: Callable[[object], Any] | None = None) -> Any:  # noqa: ANN401 - as many kinds as there are settings
    try:
        return (parse or _PARSERS[name])(value)
    except (ReprieveError, TypeError, ValueError) as error:
        message = f"{name} from {source} cannot be used: {error}"
        raise InvalidSetting(message) from error


def _seconds(value: object, name: str) -> float:
    try:
        return seconds(cast("Duration", value), name)
    except InvalidDuration as error:
        raise InvalidSetting(str(error)) from None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        message = f"must be text that is not empty, got {value!r}"
        raise ValueError(message)
    return value


def _one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in words:
            message = f"must be one of {', '.join(words)}, got {value!r}"
            raise ValueError(message)
        return str(value)

    return parse


def _whole(least: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or number < least:
            message = f"must be a whole number of {least} or more, got {value!r}"
            raise ValueError(message)
        return number

    return parse


def _yes_or_no(value: object) -> bool:
    words = {True: True, False: False, "true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    found = words.get(value.lower() if isinstance(value, str) else value)
    if found is None:
        message = f"must be true or false, got {value!r}"
        raise ValueError(message)
    return bool(found)


def _duration(value: object) -> float:
    # Variables of the environment are text, so a number there means seconds.
    if isinstance(value, str) and value.replace(".", "", 1).isdigit():
        return seconds(float(value))
    return seconds(cast("str | float", value))


def _rules(value: object) -> tuple[Rule, ...]:
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        message = f"must be an array of tables, each rule under [[rules]], got {value!r}"
        raise ValueError(message)
    return parse_rules(value)


def _policies(value: object, profile: Profile = "production") -> dict[str, Policy]:
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        message = f"must be a table of tables, each task's policy under [policies.TASK], got {value!r}"
        raise ValueError(message)
    return {task: _policy(task, table, profile) for task, table in value.items()}


def _policy(task: str, table: dict[str, Any], profile: Profile) -> Policy:
    """Read one task's policy: a preset, and the settings that override it."""
    unknown = set(table) - {"preset", "max_attempts", "retry_delay", "max_retry_delay"}
    if unknown:
        message = f"the policy of {task!r} has unknown settings: {', '.join(sorted(map(repr, unknown)))}"
        raise ValueError(message)
    override = Override(
        max_attempts=table.get("max_attempts"),
        retry_delay=None if "retry_delay" not in table else _duration(table["retry_delay"]),
        max_retry_delay=None if "max_retry_delay" not in table else _duration(table["max_retry_delay"]),
    )
    return resolve(presets.named(table.get("preset", "standard"), profile), override)


def _preset(value: object) -> str:
    presets.named(_text(value))
    return _text(value)


_LEAST = {"largest_payload": 1, "processes": 0, "slots": 1, "succeeded_kept": 0, "events_kept": 1}
_DURABILITIES = ("full", "fast", "strict")
_TABLES = {"rules", "policies"}
_PARSERS: dict[str, Callable[[object], Any]] = {
    "app": _text,
    "url": _text,
    "outbox": _text,
    "profile": _one_of(*get_args(Profile)),
    "policy": _preset,
    "durability": _one_of(*_DURABILITIES),
    "shared": _yes_or_no,
    "largest_payload": _whole(1),
    "processes": _whole(0),
    "slots": _whole(1),
    "lease": _duration,
    "heartbeat": _duration,
    "stuck_after": _duration,
    "unknown_after": _duration,
    "grace": _duration,
    "succeeded_kept": _whole(0),
    "succeeded_kept_for": _duration,
    "events_kept": _whole(1),
    "events_kept_for": _duration,
    "rules": _rules,
    "policies": _policies,
}
