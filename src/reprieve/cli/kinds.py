"""Kinds of values that options take, beside those that click knows."""

import click

from reprieve.errors import InvalidDuration


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic in click's newest releases only
    """A length of time: `30s`, `1h30m`, or a number of seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Answer seconds."""
        from reprieve.core.duration import seconds

        try:
            is_number = isinstance(value, str) and value.replace(".", "", 1).isdigit()
            return seconds(float(value) if is_number else value)
        except InvalidDuration as error:
            self.fail(str(error), param, ctx)


DURATION = DurationType()
