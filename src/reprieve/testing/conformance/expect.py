"""Assertions of the checks: they say what was expected and what was found."""

from collections.abc import Awaitable, Sequence

from reprieve.core.job import Job


def expect(holds: bool, message: str) -> None:  # noqa: FBT001 - the claim itself, as in an assert
    """Raise AssertionError with this message unless the claim holds."""
    if not holds:
        raise AssertionError(message)


def expect_equal(found: object, wanted: object, what: str) -> None:
    """Raise AssertionError unless both are equal; `what` names the thing."""
    if found != wanted:
        message = f"{what}: expected {wanted!r}, found {found!r}"
        raise AssertionError(message)


def expect_job(found: Job | None, wanted: Job, what: str = "the stored job") -> None:
    """Raise AssertionError unless the job is this one, and name only the fields that differ."""
    if found == wanted:
        return
    if found is None:
        message = f"{what}: job {wanted.id} is gone"
        raise AssertionError(message)
    fields = [name for name in wanted.__struct_fields__ if getattr(found, name) != getattr(wanted, name)]
    differences = ", ".join(f"{name} {getattr(found, name)!r} for {getattr(wanted, name)!r}" for name in fields)
    message = f"{what}: job {wanted.id} has {differences}"
    raise AssertionError(message)


def expect_ids(found: Sequence[Job], wanted: Sequence[Job], what: str) -> None:
    """Raise AssertionError unless these are the same jobs, in any order."""
    expect_equal(sorted(job.id for job in found), sorted(job.id for job in wanted), what)


async def expect_error(call: Awaitable[object], kind: type[Exception], when: str) -> None:
    """Raise AssertionError unless the call raises this error; `when` says what was tried."""
    try:
        result = await call
    except kind:
        return
    except Exception as error:
        message = f"{when}: expected {kind.__name__}, but {type(error).__name__} was raised: {error}"
        raise AssertionError(message) from error
    message = f"{when}: expected {kind.__name__}, but it returned {result!r}"
    raise AssertionError(message)
