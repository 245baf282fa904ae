"""The names by which stores index and count failures: codes and fingerprints, stored as a search accepts them."""

from typing import Any

from msgspec.structs import replace

from reprieve.core.change import Change
from reprieve.core.job import Cause, Job
from reprieve.core.values import MAX_NAME_CHARS


def code_of(job: Job) -> str:
    """Return the code of the last failure of a job; empty if it has none."""
    return "" if job.cause is None else job.cause.code


def fingerprint_of(job: Job) -> str:
    """Return the fingerprint of the last failure of a job; empty if it has none."""
    return "" if job.cause is None else job.cause.fingerprint


def with_names(change: Change) -> Change:
    """Return a change whose cause has a code and a fingerprint that are names: printable, and not too long."""
    cause = change.job.cause
    named = None if cause is None else _named(cause)
    if named is cause:
        return change
    event, move = change.event, change.event.move
    if getattr(move, "cause", None) == cause:
        changed: Any = replace(move, cause=named)
        event = replace(event, move=changed)
    return replace(change, job=replace(change.job, cause=named), event=event)


def _named(cause: Cause) -> Cause:
    code, fingerprint = _name(cause.code), _name(cause.fingerprint)
    if (code, fingerprint) == (cause.code, cause.fingerprint):
        return cause
    return replace(cause, code=code, fingerprint=fingerprint)


def _name(text: str) -> str:
    if len(text) <= MAX_NAME_CHARS and text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text[:MAX_NAME_CHARS])
