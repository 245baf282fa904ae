"""Importing an application: names of modules, no enqueue during the import, and the line that failed."""

import inspect
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from reprieve.errors import EnqueueDuringImport
from reprieve.frames import is_product, library_of, short_path

MAIN = "__main__"
_MAINS = (MAIN, "__mp_main__")
"""Names of the module that a program was started with; the second in processes that `multiprocessing` starts."""


# names


def module_of(function: Callable[..., object]) -> str:
    """Return the name under which other processes import a function's module; `__main__` if they cannot.

    A file that is run as a program is called `__main__` in that process, while a worker imports it under the name of
    the file: `shop` after `python shop.py` and `python app/shop.py`, `app.shop` after `python -m app.shop`, and also
    after `python app/shop.py` where `app` is a package of the working folder or of `sys.path`. Code at a prompt, in a
    notebook, from standard input or of `python -c` has no file that a worker could import.
    """
    module: str = function.__module__
    if module not in _MAINS:
        return module
    names = _globals_of(function)
    spec = names.get("__spec__")
    if spec is not None:
        # A folder or archive that is run as a program has a spec named `__main__`, and cannot be imported either.
        return str(spec.name)
    file = file_of(function)
    return MAIN if not file else _name_of_file(Path(os.path.abspath(file)))  # noqa: PTH100 - a link keeps its name


def file_of(function: Callable[..., object]) -> str:
    """Return the file of a function that is defined in `__main__`; empty if it has none."""
    file: str = _globals_of(function).get("__file__") or ""
    # What Python reads from standard input is called `<stdin>`.
    return "" if file.startswith("<") else file


def _globals_of(function: Callable[..., object]) -> dict[str, Any]:
    names: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    # The function may have been made by a decorator in another module.
    return names if names.get("__name__") in _MAINS else vars(sys.modules[MAIN])


def _name_of_file(path: Path) -> str:
    if path.suffix != ".py" or "." in path.stem:
        return MAIN
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    # Only a package that can be imported counts; else Python imports the file from the script's own folder.
    return ".".join(parts) if folder in _import_folders() else path.stem


def _import_folders() -> set[Path]:
    return {Path(os.path.abspath(entry)) for entry in ("", *sys.path)}  # noqa: PTH100 - as above


# no enqueue during an import

_lock = threading.Lock()
_active = 0


@contextmanager
def application() -> Iterator[None]:
    """Refuse every enqueue of this process while a worker or a command imports an application.

    The whole process counts, not the calling thread alone: a module may start threads while it is imported.
    """
    global _active  # noqa: PLW0603 - one import system, one flag
    with _lock:
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1


def refuse_enqueue() -> None:
    """Raise `EnqueueDuringImport` while an application is being imported."""
    if _active:
        raise EnqueueDuringImport(_refusal(sys._getframe(1)))  # noqa: SLF001 - the only way to the caller's line


def _refusal(frame: FrameType) -> str:
    frames = [_Line(one.f_code.co_filename, one.f_lineno, one.f_code.co_name) for one in _outwards(frame)]
    # The line to move is the one that runs because the module is imported, not the function that it calls.
    lines = [line for line in frames if line.is_module_level] or frames
    where = next((line for line in lines if line.is_of_user), lines[0])
    return (
        f"{where.shown} enqueues a job while the application is imported, and would do so again in every process of a "
        'worker; move the line under if __name__ == "__main__": or into a function'
    )


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


# failing


def explain(error: BaseException) -> str:
    """Return in one line where and how the import of an application failed; the place is the user's own line."""
    if isinstance(error, SyntaxError) and error.filename:
        what = f"{type(error).__name__}: {error.msg}"
        source = (error.text or "").strip()
        return f"{short_path(error.filename)}:{error.lineno}{f' `{source}`' if source else ''}: {what}"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SystemExit):
        what = f'it ends the program (SystemExit: {error}); move that under if __name__ == "__main__":'
    lines = list(_traceback(error))
    own = [line for line in lines if line.is_of_user] or [line for line in lines if line.is_module_level]
    return f"{own[-1].shown}: {what}" if own else what


def _traceback(error: BaseException) -> "Iterator[_Line]":
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        yield _Line(code.co_filename, traceback.tb_lineno, code.co_name)
        traceback = traceback.tb_next


class _Line(NamedTuple):
    """A line of code that was running."""

    file: str
    number: int
    function: str

    @property
    def is_of_user(self) -> bool:
        """Whether it is the application's own: not of Python, an installed library or Reprieve."""
        return not self.file.startswith("<") and not library_of(self.file)

    @property
    def is_module_level(self) -> bool:
        """Whether it runs because a module is imported that is not part of Reprieve."""
        return self.function == "<module>" and not is_product(self.file)

    @property
    def shown(self) -> str:
        """File, line number and source."""
        source = linecache.getline(self.file, self.number).strip()
        return f"{short_path(self.file)}:{self.number}{f' `{source}`' if source else ''}"
