"""The end of a history: all limits are removed, and every waiting or running job must end."""

from msgspec.structs import replace

from reprieve.stores.protocol import Claimed, LimitUpdate
from reprieve.testing.conformance.expect import expect
from reprieve.testing.conformance.machine.model import update_of
from reprieve.testing.conformance.machine.play import Play
from reprieve.testing.conformance.machine.shapes import QUEUES

MAX_CALLS = 400
"""Calls after which a job that still waits counts as lost."""


def drain(play: Play) -> None:
    """Run all jobs to their end."""
    model = play.model
    for name, rule in model.rules.items():
        opened = update_of(name, permits=None, max_running=None, rate=None)
        play.update_limits([replace(opened, pauses=()) if rule.pauses else opened])
    for subject in model.defaults:
        play.update_limits([LimitUpdate(subject=subject, name=None, permits="default", max_running="default")])
    for _ in range(MAX_CALLS):
        if not any(job.state in ("waiting", "running") for job in model.jobs.values()):
            return
        play.recover(100)
        session = play.worker(1)
        changes = [play.settlement(job, 0) for job in session.hand.values()]
        claimed = play.claim(1, 20, QUEUES, changes)
        if claimed is not None and not session.hand:
            _pass_time(play, claimed)
    left = [job for job in model.jobs.values() if job.state in ("waiting", "running")]
    expect(not left, f"{len(left)} jobs never came to an end, such as {left[:1]!r}")


def _pass_time(play: Play, claimed: Claimed) -> None:
    """Move the clock to the time that the claim names, or to the end of the remaining leases."""
    model = play.model
    ends = [session.expires_at + 1 for session in model.sessions.values() if not session.is_dead]
    ends = [at for at in ends if at > model.now] if model.leases else []
    times = [at for at in (claimed.next_at, *ends) if at is not None]
    if times:
        play.step(max(0, min(times) - model.now))
