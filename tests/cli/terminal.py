"""A terminal of 80 columns: what a person sees, which is not what a pipe gets."""

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

STYLE = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*arguments: str, columns: int = 80, colours: bool = False) -> str:
    """Run `reprieve …` on a terminal; return what it prints."""
    return run([sys.executable, "-m", "reprieve", *arguments], columns=columns, colours=colours)


def run(
    command: Sequence[str], *, columns: int = 80, colours: bool = False, environ: dict[str, str] | None = None
) -> str:
    """Run a command whose standard output is a terminal; return what it prints."""
    reader, terminal = pty.openpty()
    printed: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(reader, 65_536):
                printed.append(part)
        except OSError:  # the other end was closed
            return

    thread = threading.Thread(target=read)
    thread.start()
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.PIPE,
            env={**(os.environ if environ is None else environ), "TERM": "xterm-256color", "COLUMNS": str(columns)},
            timeout=60,
        )
    finally:
        os.close(terminal)
        thread.join()
        os.close(reader)
    assert done.returncode == 0, done.stderr.decode()
    text = b"".join(printed).decode().replace("\r\n", "\n")
    return text if colours else STYLE.sub("", text)
