"""What a measurement was made on: enough to judge it by, and nothing that names the machine."""

import os
import platform
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.flow.side import ROOT
from reprieve.worker.configuration import cores

FLUSHES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What figures depend on."""

    system: str
    processor: str
    cores: int
    memory: str
    load: float
    """How many processes wanted to run in the minute before."""
    flushes: int
    """How often a second a growing file was flushed to the disk."""


def facts() -> Machine:
    """Describe this machine."""
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=cores(),
        memory=f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        load=round(os.getloadavg()[0], 1),
        flushes=round(_flushes()),
    )


def commit() -> str:
    """Return the commit of this checkout, with a plus when it has been changed; empty outside of one."""
    try:
        name = _git("rev-parse", "--short=12", "HEAD")
        return name + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str) -> str:
    command = ["git", *words]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - git of the PATH
    return run.stdout.strip()


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _flushes() -> float:
    with tempfile.TemporaryFile() as file:
        started = time.perf_counter()
        for _ in range(FLUSHES):
            file.write(b"x" * 4_096)
            file.flush()
            os.fsync(file.fileno())
        return FLUSHES / (time.perf_counter() - started)
