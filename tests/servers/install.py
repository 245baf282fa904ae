"""Install the servers that the tests start, where they are missing: `python -m tests.servers.install`.

Nothing happens when all of them are found. Otherwise one line says what is installed, or, where this process may not
install anything, what to install. Debian's packages would start a service each; these are neither started nor enabled,
since the tests start servers of their own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.servers.program import PROGRAMS, Program

APT_GET: Final = ("apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=300")
"""With enough patience for another process that installs something."""

NO_SERVICES: Final = "#!/bin/sh\n# Written by Reprieve's make servers while it installs; may be removed.\nexit 101\n"
"""What tells Debian's install scripts that no service may be started."""


@dataclass(frozen=True)
class Machine:
    """What is known of the machine that programs are installed on."""

    is_root: bool
    policy: Path = Path("/usr/sbin/policy-rc.d")
    """Where Debian's install scripts ask whether a service may be started."""


def provide(programs: Sequence[Program], machine: Machine) -> int:
    """Install the programs that are missing; return the exit status: 0 when all of them are there."""
    missing = [program for program in programs if program.path() is None]
    if not missing:
        return 0
    titles = _listed([program.title for program in missing])
    packages = [program.package for program in missing]
    apt_get = shutil.which(APT_GET[0])
    if apt_get is None or not machine.is_root:
        _say(f"the tests need {titles}; install with: {_command(packages, has_apt_get=apt_get is not None)}")
        return 1
    _say(f"the tests need {titles}: installing {_listed(packages)} with apt-get (no service is started or enabled) …")
    with _services_kept_off(machine.policy):
        # The first install fails where the package lists are missing or old.
        reason = _install(packages) and (_run(*APT_GET, "update") or _install(packages))
    for package in packages:
        _run("update-rc.d", package, "disable")
    absent = [program for program in missing if program.path() is None]
    if absent:
        _say(f"apt-get did not install {_listed([program.title for program in absent])}:\n{reason}")
        return 1
    _say(f"{titles} installed")
    return 0


def _command(packages: Sequence[str], *, has_apt_get: bool) -> str:
    """Return the command that installs packages."""
    if has_apt_get:
        return f"sudo apt-get install -y --no-install-recommends {' '.join(packages)}"
    if shutil.which("brew"):
        return f"brew install {' '.join(package.removesuffix('-server') for package in packages)}"
    return f"your package manager (on Debian: {' '.join(packages)})"


def _install(packages: Sequence[str]) -> str:
    return _run(*APT_GET, "install", "--no-install-recommends", *packages)


def _run(*command: str) -> str:
    """Run a command; return the end of what it printed if it failed, and nothing if it did not."""
    try:
        ended = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
    except OSError as error:
        return str(error)
    return "\n".join(ended.stdout.splitlines()[-20:]) or "failed silently" if ended.returncode else ""


@contextmanager
def _services_kept_off(policy: Path) -> Iterator[None]:
    """Forbid that install scripts start services; a policy of the machine's own stays as it is."""
    if policy.exists():
        yield
        return
    policy.write_text(NO_SERVICES)
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink(missing_ok=True)


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _say(line: str) -> None:
    print(f"reprieve: {line}", file=sys.stderr, flush=True)  # noqa: T201 - it talks to the person who ran make


if __name__ == "__main__":
    sys.exit(provide(PROGRAMS, Machine(is_root=os.geteuid() == 0)))
