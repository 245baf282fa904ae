"""What happened to jobs, for programs that follow or replay it: `handle.history()` returns a `History`."""

from reprieve.core.attempt import Attempt
from reprieve.core.events import Event, replay
from reprieve.core.history import History
from reprieve.core.notice import Notice

__all__ = ["Attempt", "Event", "History", "Notice", "replay"]
