"""Forks: what becomes of a process that a task forks off its worker."""

import asyncio
import os
import signal
import sys
import threading
import traceback
from typing import NoReturn

from reprieve.worker.process_exit import exit_now

_OWN_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that a worker process handles itself."""


def detach_forks() -> None:
    """Let forks of this process be processes like any other: its signals and its event loop are not theirs."""
    forking = threading.local()

    def begin() -> None:
        # A signal to the fork waits until it has handlers of its own.
        forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _OWN_SIGNALS)

    def end() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, forking.mask)

    def end_in_fork() -> None:
        _detach()
        end()

    os.register_at_fork(before=begin, after_in_parent=end, after_in_child=end_in_fork)


def _detach() -> None:
    # Otherwise a signal to the fork would be written to a socket that the event loop of its parent reads.
    signal.set_wakeup_fd(-1)
    for number in _OWN_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    # A fork that awaits something fails, instead of running the attempts of its parent as well.
    asyncio._set_running_loop(None)  # noqa: SLF001 - documented for authors of event loops


def exit_fork() -> NoReturn:
    """End a fork that has returned from its task, as a program ends: its parent settles the job."""
    error = sys.exception()
    if error is not None and not isinstance(error, SystemExit):
        traceback.print_exception(error)
    exit_now(0 if error is None else 1)
