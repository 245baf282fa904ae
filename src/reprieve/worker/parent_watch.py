"""The parent watch: ends a process when its parent ends, whatever the process is busy with."""

import contextlib
import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def leave_signals_to_parent() -> None:
    """Ignore what reaches every process of a worker: Ctrl-C, and the end of its terminal.

    The supervisor decides how its children end. A program that a task starts ignores both as well.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def exit_with_parent(parent: int, pipe: int | None = None) -> None:
    """End this process when the parent with this id ends.

    On Linux the kernel does it, even while native code holds the interpreter. With a pipe whose other end only the
    parent holds, a thread does it elsewhere too.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The parent ended before the call.
            os._exit(1)
    if pipe is not None:
        threading.Thread(target=_watch, args=(pipe,), name="reprieve-parent-watch", daemon=True).start()


def _watch(pipe: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(pipe, 1):
            pass
    os._exit(1)
