"""Kinds of values that options take, beside those that click knows."""

from typing import NamedTuple

import click

from reprieve.errors import InvalidDuration


class Since(NamedTuple):
    """Where to begin: one of the two is given."""

    place: int | None = None
    seconds_ago: float | None = None


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic in click's newest releases only
    """A length of time: `30s`, `1h30m`, or a number of seconds."""

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
    """A place in the stream of events, or a duration before now: `1842`, `10m`."""

    name = "place or duration"

    def convert(self, value: str | Since, param: click.Parameter | None, ctx: click.Context | None) -> Since:
        """Return which of the two it is."""
        if isinstance(value, Since):
            return value
        if value.isdecimal():
            return Since(place=int(value))
        if not value[:1].isdecimal():
            message = f"{value!r} is neither a place in the stream nor a duration; write --since 1842 or --since 10m"
            raise click.BadParameter(message, ctx, param)
        return Since(seconds_ago=DURATION.convert(value, param, ctx))


DURATION = DurationType()
SINCE = SinceType()
