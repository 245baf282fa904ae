"""The connections of a process to one file: a writer, a reader, and a notifier of commits."""

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from reprieve.stores.sqlite.file import Durability
from reprieve.stores.sqlite.notifier import Notifier
from reprieve.stores.sqlite.open_file import OpenFile
from reprieve.stores.sqlite.writer import Writer


class Connections:
    """A file, opened to write, to read and to wait for commits; or a database in memory, for one process."""

    def __init__(
        self,
        path: Path | None,
        durability: Durability,
        *,
        shared: bool,
        forget_written: Callable[[], None] = lambda: None,
        forget_read: Callable[[], None] = lambda: None,
    ) -> None:
        """Open a file that `prepare` has checked; `shared` allows one that has tables of an application.

        `forget_written` and `forget_read` drop what the writer and the reader have cached, since it does not hold any
        more: a transaction was rolled back, or the file was replaced.
        """
        self.on_node: Callable[[int], None] = lambda _: None
        """Called with a new node number when the file was replaced by another one."""
        self._file = OpenFile(path, durability, shared=shared)
        with ExitStack() as opened:
            self.notifier = Notifier(self._file)
            opened.callback(self.notifier.close)
            self.writer = Writer(self._file, self.notifier.notify, forget_written)
            opened.callback(self.writer.close)
            self.reader = self.writer
            if path is not None:
                # A long search must not block the writer.
                self.reader = Writer(self._file, _nothing, forget_read, "deferred")
            opened.pop_all()
        self._file.on_lost = lambda: _start(self._disconnect)
        self._file.on_reopened = self._reopened
        if path is not None:
            _opened.add(self)

    @property
    def path(self) -> Path | None:
        """The file, by its absolute name; None in memory."""
        return self._file.path

    def close(self) -> None:
        """Finish the calls under way, then close the file."""
        self.reader.close()
        self.writer.close()
        self.notifier.close()

    def pause(self) -> None:
        """Close the file while this process forks, which SQLite does not support. See `Writer.pause`."""
        self.writer.pause()
        if self.reader is not self.writer:
            self.reader.pause()
        self.notifier.pause()

    def resume(self) -> None:
        """Open the file again."""
        self.notifier.resume()
        self._resume_work()

    def leave(self) -> None:
        """Leave the file closed, in the forked child of the process that opened it."""
        self.notifier.leave()
        self._resume_work()

    def _resume_work(self) -> None:
        if self.reader is not self.writer:
            self.reader.resume()
        self.writer.resume()

    def _disconnect(self) -> None:
        """Close all connections to a file that was deleted or replaced."""
        self.pause()
        self.resume()

    def _reopened(self, node: int | None) -> None:
        """Use the file that has taken the place of the one before. Called by the thread that opens it."""
        if node is not None:
            self.on_node(node)
        _start(self.notifier.reopen)


def _start(work: Callable[[], None]) -> None:
    """Run work that waits for the other threads of a store, in a thread of its own."""
    threading.Thread(target=work, name="reprieve-reopen", daemon=True).start()


def _nothing(*_: object) -> None:
    """Do nothing: a read notifies no session."""


_opened: weakref.WeakSet[Connections] = weakref.WeakSet()
_paused: list[Connections] = []


def _pause_all() -> None:
    opened = list(_opened)
    for connections in opened:
        connections.pause()
    _paused.extend(opened)


def _resume_all() -> None:
    while _paused:
        _paused.pop().resume()


def _leave_all() -> None:
    while _paused:
        _paused.pop().leave()


os.register_at_fork(before=_pause_all, after_in_parent=_resume_all, after_in_child=_leave_all)
