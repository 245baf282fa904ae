"""What happened to jobs, for programs that follow or replay it: `handle.history()` returns a `History`."""

from reprieve.core.attempt import Attempt
from reprieve.core.events import Event, replay
from reprieve.core.history import History

__all__ = ["Attempt", "Event", "History", "replay"]
