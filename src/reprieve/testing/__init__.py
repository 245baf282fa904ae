"""What tests of applications and of stores need. Nothing of the product imports it."""

from reprieve.testing.clock import FakeClock
from reprieve.testing.drain import adrain, drain
from reprieve.testing.drained import Attempted, Drained
from reprieve.testing.enqueued import Enqueued, assert_enqueued, enqueued
from reprieve.testing.fault import Fault, FaultyStore, crash_points
from reprieve.testing.inline import inline

__all__ = [
    "Attempted",
    "Drained",
    "Enqueued",
    "FakeClock",
    "Fault",
    "FaultyStore",
    "adrain",
    "assert_enqueued",
    "crash_points",
    "drain",
    "enqueued",
    "inline",
]
