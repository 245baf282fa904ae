"""Short tracebacks for the log: the application's own frames with their source lines, and library frames folded.

Locals are never shown, secrets are redacted, and the size is bounded whatever was raised.
"""

import linecache
from collections.abc import Iterator
from types import CodeType, TracebackType
from typing import Final

from msgspec.structs import replace

from reprieve.core.failure import Failure, class_name, read
from reprieve.core.redact import redact, redact_source
from reprieve.frames import library_of, short_path
from reprieve.worker import logs

MAX_CHARS: Final = 2_048
"""Characters of a whole traceback."""

MAX_MESSAGE_CHARS: Final = 500
"""Characters of one exception's message."""

MAX_SOURCE_CHARS: Final = 160
"""Characters of one source line."""

MAX_FRAMES: Final = 10
"""Frames of the application that are shown of one exception: the outermost two, and the innermost."""

MAX_CHAIN: Final = 4
"""Exceptions of a chain of causes and contexts that are shown."""

MAX_GROUP: Final = 3
"""Exceptions of a group that are shown."""

MAX_GROUP_DEPTH: Final = 2
"""Groups inside of groups that are opened."""

_MAX_NOTES, _MAX_LIBRARIES, _MAX_CACHED = 3, 3, 4_096
_OUTERMOST = 2
_HEADER = "Traceback (most recent call last):"
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_EARLIER = "… earlier exceptions …"
_RESERVED_CHARS = len(_EARLIER) + len(_CAUSE) + 8
"""Characters that are left free for the line that says what is not shown."""

_Call = tuple[CodeType, int]


def failure_of(error: BaseException, *, dependency: str = "", now: int | None = None) -> Failure:
    """Return the facts of an exception, with a traceback if the log shows any."""
    failure = read(error, dependency=dependency, now=now)
    return replace(failure, traceback=describe(error)) if logs.shows_tracebacks() else failure


def with_traceback(failure: Failure, error: BaseException) -> Failure:
    """Return a failure that was not read from this exception, with the traceback of it if the log shows any."""
    return replace(failure, traceback=describe(error)) if logs.shows_tracebacks() else failure


def describe(error: BaseException) -> str:
    """Return the traceback of an exception and of what led to it, the newest last as Python prints it.

    Empty for an exception that was never raised.
    """
    if error.__traceback__ is None and error.__cause__ is None:
        return ""
    text, left = "", MAX_CHARS - _RESERVED_CHARS
    for number, (link, one) in enumerate(_chain(error)):
        block = "\n".join(_block(one))
        if not number:
            text = block if len(block) <= left else f"…{block[1 - left :]}"
        elif number == MAX_CHAIN or len(block) + len(link) > left:
            # The newest says what happened; of what led to it, the oldest is the first to go.
            text = f"{_EARLIER}\n\n{link}\n\n{text}"
            break
        else:
            text = f"{block}\n\n{link}\n\n{text}"
        left = MAX_CHARS - _RESERVED_CHARS - len(text)
    return text


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Go through an exception and what led to it, the newest first, each with how it leads to the one before."""
    seen: set[int] = set()
    link = ""
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        yield link, following
        seen.add(id(following))
        if following.__cause__ is not None:
            link, following = _CAUSE, following.__cause__
        else:
            link, following = _CONTEXT, None if following.__suppress_context__ else following.__context__


def _block(error: BaseException, depth: int = 0) -> Iterator[str]:
    """Write one exception: where it was raised, what it is, and what it says."""
    frames = list(_frames(error.__traceback__))
    if frames:
        yield _HEADER
        yield from frames
    yield from _message(error)
    if isinstance(error, BaseExceptionGroup):
        if depth == MAX_GROUP_DEPTH:
            return
        for inner in error.exceptions[:MAX_GROUP]:
            yield from (f"  | {line}" for part in _block(inner, depth + 1) for line in part.splitlines())
        if len(error.exceptions) > MAX_GROUP:
            yield f"  | … {len(error.exceptions) - MAX_GROUP} more exceptions …"


def _message(error: BaseException) -> Iterator[str]:
    name = class_name(type(error))
    text = _clean(_text_of(error), MAX_MESSAGE_CHARS)
    yield f"{name}: {text}" if text else name
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list | tuple):
        yield from (_clean(str(note), MAX_SOURCE_CHARS) for note in notes[:_MAX_NOTES])


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a foreign __str__ may raise anything, and the failure must still be shown
        return ""


def _clean(text: str, limit: int) -> str:
    """Redact and bound a text that was written elsewhere, and let it move no cursor."""
    # A little more than is shown is read: a secret that is cut in two would not be recognised.
    text = redact(text[: 2 * limit]).strip()
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _frames(trace: TracebackType | None) -> Iterator[str]:
    """Write the frames of the application, and each run of library frames between them as one line."""
    runs = _runs(trace)
    own = sum(len(calls) for library, calls in runs if not library)
    if own and runs[0][0]:
        # What is outside of the application is the worker, and the same each time.
        del runs[0]
    hidden = max(0, own - MAX_FRAMES)
    number = 0
    for is_library, calls in runs:
        if is_library:
            if not hidden or number <= _OUTERMOST or number >= own - MAX_FRAMES + _OUTERMOST:
                yield _folded(calls)
            continue
        for code, line in calls:
            number += 1
            if not hidden or number <= _OUTERMOST or number > _OUTERMOST + hidden:
                yield _frame(code, line)
            elif number == _OUTERMOST + 1:
                yield f"  … {hidden} more frames …"


def _runs(trace: TracebackType | None) -> list[tuple[bool, list[_Call]]]:
    """Divide a traceback into runs of library frames and of the application's own."""
    runs: list[tuple[bool, list[_Call]]] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        is_library = bool(library_of(code.co_filename))
        if not runs or runs[-1][0] != is_library:
            runs.append((is_library, []))
        runs[-1][1].append((code, trace.tb_lineno))
        trace = trace.tb_next
    return runs


def _folded(calls: list[_Call]) -> str:
    names = list(dict.fromkeys(library_of(code.co_filename) for code, _ in calls))
    others = ", …" if len(names) > _MAX_LIBRARIES else ""
    return f"  … {len(calls)} frame{'s' * (len(calls) > 1)} in {', '.join(names[:_MAX_LIBRARIES])}{others} …"


_lines: dict[tuple[str, int, str], str] = {}
"""Frames as they are shown: those of failures that come in crowds are written once."""


def _frame(code: CodeType, line: int) -> str:
    key = (code.co_filename, line, code.co_qualname)
    shown = _lines.get(key)
    if shown is None:
        if len(_lines) >= _MAX_CACHED:
            _lines.clear()
        source = redact_source(linecache.getline(code.co_filename, line).strip())
        if len(source) > MAX_SOURCE_CHARS:
            source = f"{source[: MAX_SOURCE_CHARS - 1]}…"
        shown = f'  File "{short_path(code.co_filename)}", line {line}, in {code.co_qualname}'
        shown = _lines[key] = f"{shown}\n    {source}" if source else shown
    return shown
