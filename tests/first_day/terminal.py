"""The terminal of a new user: the user types lines that begin with `python` or `reprieve`."""

import subprocess
import sys

from tests.first_day.user import User
from tests.terminal import Terminal


class UserTerminal(Terminal):
    """A terminal in the user's folder."""

    def __init__(self, user: User) -> None:
        super().__init__(user.folder, user.environ(NO_COLOR="1"))
        self._commands = {"python": sys.executable, "reprieve": user.command()[0]}

    def type(self, line: str) -> subprocess.Popen[bytes]:
        """Start a command, `python …` or `reprieve …`."""
        name, *words = line.partition("#")[0].split()
        return self.start([self._commands[name], *words])
