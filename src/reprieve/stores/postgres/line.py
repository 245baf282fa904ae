"""A line to the server: a connection that waits for an answer only so long."""

from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg

from reprieve.clock import ticks

T = TypeVar("T")

PATIENCE: Final = 10
"""Seconds for which somebody else's turn, or a server that cannot be reached, is waited for."""

LOOKS: Final = 120
"""Seconds that a statement may take: some count all jobs of a large store."""

CHANGES: Final = 30
"""Seconds for which whatever changes something is waited for: it looks at little, after it was its turn."""


class Line(psycopg.Connection[Any]):
    """A connection that is given up when the server says nothing for too long."""

    patience: float = CHANGES
    """Seconds without a word. Any thread may change it, also while another one waits."""

    is_pooled: bool = True
    """Whether another session of the server may answer each transaction, which then finds nothing of what was set."""

    def hang_up(self) -> None:
        """Close it, and let the server stop what it may be doing for us."""
        with suppress(psycopg.Error):
            self.cancel_safe(timeout=1.0)
        self.close()

    def bear(self, since: float) -> None:
        """Bear with a server that has said nothing since then, or close the connection."""
        silence = ticks() - since
        if silence > self.patience:
            self.close()
            message = f"no answer within {silence:.0f} s"
            raise psycopg.OperationalError(message)

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:  # noqa: ANN401 - as psycopg's own
        """Wait until the server has answered."""
        return super().wait(self._patiently(gen), *args, **kwargs)

    def _patiently(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        since = ticks()
        try:
            wanted = next(gen)
            while True:
                # Nothing comes in several times a second, if nothing else does.
                came = yield wanted
                if came:
                    since = ticks()
                else:
                    self.bear(since)
                wanted = gen.send(came)
        except StopIteration as end:
            answer: T = end.value
            return answer
