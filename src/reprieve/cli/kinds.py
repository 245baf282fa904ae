"""Types of option values beside those of click."""

from typing import NamedTuple

import click

from reprieve.errors import InvalidDuration


class Since(NamedTuple):
    """Where to begin: a position in the stream, or a time ago."""

    position: int | None = None
    seconds_ago: float | None = None


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic only in the newest releases of click
    """A duration: `30s`, `1h30m`, or a number of seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        from reprieve.core.duration import seconds

        try:
            is_number = isinstance(value, str) and value.replace(".", "", 1).isdigit()
            return seconds(float(value) if is_number else value)
        except InvalidDuration as error:
            self.fail(str(error), param, ctx)


class SinceType(click.ParamType):  # type: ignore[type-arg]  # as above
    """A position in the stream of events, or a duration before now: `1842`, `10m`."""

    name = "position or duration"

    def convert(self, value: str | Since, param: click.Parameter | None, ctx: click.Context | None) -> Since:
        """Return the position or the duration."""
        if isinstance(value, Since):
            return value
        if value.isdecimal():
            return Since(position=int(value))
        if not value[:1].isdecimal():
            message = f"it must be a position in the stream (1842) or a duration (10m), got {value!r}"
            raise click.BadParameter(message, ctx, param)
        return Since(seconds_ago=DURATION.convert(value, param, ctx))


DURATION = DurationType()
SINCE = SinceType()
