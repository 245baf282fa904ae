"""The runner: makes one attempt, from the stored arguments to an outcome. It raises only when it is cancelled."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Protocol

from msgspec.structs import replace

from reprieve.clock import Clock
from reprieve.context import Running, enter
from reprieve.core.classify import judge
from reprieve.core.failure import Failure
from reprieve.core.job import Job
from reprieve.core.outcome import Failed, Interrupted, Outcome, Snoozed, Stopped, Succeeded, overran, undecodable
from reprieve.core.policy import Policy
from reprieve.core.unreadable import unreadable_record
from reprieve.core.verdict import Verdict
from reprieve.declaration import Declaration
from reprieve.errors import UndecodablePayload, UnserialisableArgument
from reprieve.json_data import dump
from reprieve.registry import Registry
from reprieve.signals import Cancel, Fail, Retry, Signal, Snooze, signal_in
from reprieve.worker import logs
from reprieve.worker.forks import exit_fork
from reprieve.worker.job_logging import log_broken_policy
from reprieve.worker.middleware import Middleware, run_through
from reprieve.worker.tracebacks import failure_of, with_full_traceback, with_traceback


class Isolation(Protocol):
    """Runs attempts in processes of their own."""

    async def run(self, declaration: Declaration, running: Running) -> Outcome:
        """Run one attempt; an attempt that ends its process has crashed. Cancelled, it kills the process."""
        ...


class Runner:
    """Makes attempts of an app's tasks."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        *,
        middleware: list[Middleware],
        max_result_bytes: int,
        threads: int,
        isolation: Isolation | None = None,
    ) -> None:
        """Take the tasks, and where they run; without `isolation`, all of them run in this process."""
        self._registry = registry
        self._clock = clock
        self._middleware = middleware
        self._max_result_bytes = max_result_bytes
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="reprieve")
        self._isolation = isolation
        self.wants_full_traceback: Callable[[Failure], bool] = lambda _: True
        """Called with every failure of a task in this process: whether its full traceback is needed. An isolated
        process cannot know which ones its worker has written, so it makes them all."""

    def is_isolated(self, job: Job) -> bool:
        """Whether a job runs in a process of its own: its task asks for it, or the job is a suspect.

        There a suspect harms no other job, and no other job can be to blame.
        """
        declaration = None if self._isolation is None else self._registry.find(job.task)
        return declaration is not None and _wants_isolation(declaration, job)

    def time_limit(self, job: Job, start_seconds: float = 0.0) -> float:
        """Return how many seconds an attempt may take: its task's timeout, or the time until its deadline if shorter.

        `start_seconds` are added to the timeout, for a process that has to start first.
        """
        timeout = self._registry.timeout_of(job.task) + start_seconds
        if job.deadline_at is None:
            return timeout
        left_ms = job.deadline_at - self._clock.now()
        # A millisecond more, so that the deadline has passed when the time is up.
        return min(timeout, (left_ms + 1) / 1_000) if left_ms > 0 else 0.0

    def overran(self, job: Job) -> Failed:
        """Return the outcome of an attempt that reached its time limit."""
        return overran(job, self._registry.timeout_of(job.task), self._clock.now())

    async def run(self, running: Running) -> Outcome:
        """Make one attempt, and return its outcome."""
        job = running.job
        record = unreadable_record(job)
        if record is not None:
            return undecodable(record.reason)
        declaration = self._registry.find(job.task)
        if declaration is None:
            # For a worker that knows the task.
            return Interrupted(started=False)
        if self._isolation is not None and _wants_isolation(declaration, job):
            return await self._isolation.run(declaration, running)
        return await self.run_here(declaration, running)

    async def run_here(self, declaration: Declaration, running: Running) -> Outcome:
        """Make one attempt in this process."""
        job = running.job
        try:
            args, kwargs = declaration.codec.decode(job.payload)
        except UndecodablePayload as error:
            return undecodable(str(error))
        call = self._call_of(declaration, running, args, kwargs)
        try:
            value = await (run_through(self._middleware, running, call) if self._middleware else call())
        except Exception as error:  # noqa: BLE001 - whatever a task raises is its outcome
            outcome = outcome_of(error, job, self._registry.policy_of(job), self._clock.now())
            if isinstance(outcome, Failed) and self.wants_full_traceback(outcome.failure):
                outcome = replace(outcome, failure=with_full_traceback(outcome.failure, error))
            return outcome
        return self._outcome_of_value(declaration, job, value)

    def _outcome_of_value(self, declaration: Declaration, job: Job, value: object) -> Outcome:
        """Return the outcome of a value that a task returned: a signal, a result to keep, or neither."""
        if isinstance(value, Signal):
            return outcome_of(value, job, self._registry.policy_of(job), self._clock.now())
        if not declaration.result_ttl:
            return DONE
        try:
            result = dump(value, f"result of {job.task}")
        except UnserialisableArgument as error:
            return _unusable_result(str(error))
        if len(result) > self._max_result_bytes:
            return _unusable_result(
                f"the result of {job.task} has {len(result):,} bytes, and the store takes {self._max_result_bytes:,}; "
                "return a reference to it"
            )
        return Succeeded(result=result)

    def _call_of(
        self, declaration: Declaration, running: Running, args: list[object], kwargs: dict[str, object]
    ) -> Callable[[], Awaitable[object]]:
        enter(running)
        logs.enter_job(running)
        begin = partial(declaration.function, *args, **kwargs)
        process = os.getpid()

        async def call() -> object:
            try:
                if declaration.is_async:
                    value = await begin()  # type: ignore[misc]  # declared as async
                else:
                    running.thread = self._threads.submit(copy_context().run, _call, begin, process)
                    value = await asyncio.wrap_future(running.thread)
                # A plain decorator around an async function returns a coroutine: the work is done when that is.
                return await value if isawaitable(value) else value
            finally:
                if os.getpid() != process:
                    exit_fork()

        return call

    def close(self) -> None:
        """Start nothing more, and do not wait: a thread that still runs ends with the process."""
        self._threads.shutdown(wait=False, cancel_futures=True)


DONE = Succeeded()


def _call(begin: Callable[[], object], process: int) -> object:
    """Call a function in its thread."""
    try:
        return begin()
    except StopIteration as error:
        # As in a coroutine. An asyncio future does not accept it, and its attempt would never end.
        message = "the task raised StopIteration"
        raise RuntimeError(message) from error
    finally:
        if os.getpid() != process:
            exit_fork()


def _wants_isolation(declaration: Declaration, job: Job) -> bool:
    return declaration.executor == "process" or job.is_suspect


def outcome_of(error: Exception, job: Job, policy: Policy, now: int) -> Outcome:
    """Return the outcome of an exception, or of a signal, that a task raised; also of one in an exception group."""
    signal = signal_in(error)
    if signal is None:
        failure = failure_of(error, dependency=job.dependency, now=now)
        return Failed(failure=failure, verdict=judge(failure, policy.rules, partial(log_broken_policy, job)))
    match signal:
        case Snooze():
            return Snoozed(delay=signal.delay)
        case Cancel():
            return Stopped(reason=signal.reason)
        case Retry():
            failure = failure_of(signal.__cause__ or signal, dependency=job.dependency, now=now)
            verdict = Verdict(kind="transient", code=failure.code or "retry", rule="the task")
            return Failed(failure=failure, verdict=verdict, retry_in=signal.after)
        case Fail():
            failure = with_traceback(Failure(message=signal.reason, code="fail"), signal)
            return Failed(failure=failure, verdict=Verdict(kind="permanent", code="fail", rule="the task"))
        case _:
            message = f"{type(signal).__name__} is not a signal that a worker knows"
            raise AssertionError(message)


def failed_by(error: BaseException, job: Job) -> Failed:
    """Return the outcome of an attempt that ended with an exception outside of its task, by the standard rules."""
    failure = with_full_traceback(failure_of(error, dependency=job.dependency), error)
    return Failed(failure=failure, verdict=judge(failure, ()))


def _unusable_result(message: str) -> Failed:
    """Return the outcome of an attempt whose result cannot be kept: the work is done, and a retry would not help."""
    failure = Failure(message=message, code="result")
    return Failed(failure=failure, verdict=Verdict(kind="permanent", code="result", rule="result"))
