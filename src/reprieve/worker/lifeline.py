"""The lifeline: a process that was started for another must not outlive it, whatever it is busy with."""

import contextlib
import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def die_with(parent: int, lifeline: int | None = None) -> None:
    """End this process when its parent ends, which closes the other end of the lifeline.

    Where the kernel can do it, it does so by itself, even while native code holds the interpreter.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # It was faster than we are.
            os._exit(1)
    if lifeline is not None:
        threading.Thread(target=_hold, args=(lifeline,), name="reprieve-lifeline", daemon=True).start()


def _hold(lifeline: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(lifeline, 1):
            pass
    os._exit(1)
