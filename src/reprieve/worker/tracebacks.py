"""Tracebacks: short ones for the log and for jobs, with library frames folded; and full ones for groups of failures.

Local variables are never shown, secrets are redacted, and the size is bounded.
"""

import linecache
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from types import TracebackType
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from reprieve.core.failure import Failure, class_name, read
from reprieve.core.redact import redact, redact_source
from reprieve.core.text import last_lines
from reprieve.frames import library_of, short_path


class Size(NamedTuple):
    """How much of a traceback is shown."""

    chars: int
    """Characters of the whole."""
    message_chars: int
    """Characters of one exception's message."""
    frames: int
    """Frames of one exception: the outermost two, and the innermost."""
    chain: int
    """Exceptions of a chain of causes and contexts."""
    group: int
    """Exceptions of a group."""
    is_folded: bool
    """Whether frames of libraries are folded into one line; then they do not count as frames."""


SHORT: Final = Size(chars=2_048, message_chars=500, frames=10, chain=4, group=3, is_folded=True)
FULL: Final = Size(chars=16_384, message_chars=2_000, frames=100, chain=10, group=10, is_folded=False)

MAX_SOURCE_CHARS: Final = 160
"""Characters of one source line."""

MAX_GROUP_DEPTH: Final = 2
"""Levels of groups inside of groups that are shown."""

_MAX_NOTES, _MAX_LIBRARIES = 3, 3
_MAX_CACHED_BLOCKS, _MAX_CACHED_FRAMES = 512, 4_096
_OUTERMOST = 2
_HEADER = "Traceback (most recent call last):"
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_EARLIER = "… earlier exceptions …"
_RESERVED_CHARS = len(_EARLIER) + len(_CAUSE) + 8
"""Characters that are kept free for the line that says what is left out."""


class _Call(NamedTuple):
    """One frame of a traceback."""

    filename: str
    line: int
    function: str
    library: str
    """Empty for the application's own code."""


_RawCall: TypeAlias = tuple[str, int, str, str]
"""The fields of a call, as they are looked up for every failure: a named tuple takes five times as long to make."""


def failure_of(error: BaseException, *, dependency: str = "", now: int | None = None) -> Failure:
    """Return the facts of an exception, with its traceback."""
    return with_traceback(read(error, dependency=dependency, now=now), error)


def with_traceback(failure: Failure, error: BaseException) -> Failure:
    """Return a failure with the traceback of an exception."""
    return replace(failure, traceback=describe(error))


def with_full_traceback(failure: Failure, error: BaseException) -> Failure:
    """Return a failure with the traceback of an exception and all its frames."""
    return replace(failure, full_traceback=describe(error, FULL))


def describe(error: BaseException, size: Size = SHORT) -> str:
    """Return the traceback of an exception and of what led to it, the newest last as Python prints it.

    Empty for an exception that was never raised.
    """
    if error.__traceback__ is None and error.__cause__ is None:
        return ""
    text, left = "", size.chars - _RESERVED_CHARS
    for number, (link, one) in enumerate(_chain(error)):
        block = _block(one, size)
        if not number:
            text = block if len(block) <= left else last_lines(block, left)
        elif number == size.chain or len(block) + len(link) > left:
            # The newest says what happened; of what led to it, the oldest is left out first.
            text = f"{_EARLIER}\n\n{link}\n\n{text}"
            break
        else:
            text = f"{block}\n\n{link}\n\n{text}"
        left = size.chars - _RESERVED_CHARS - len(text)
    return text


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Yield an exception and what led to it, the newest first, each with how it leads to the one before."""
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


def _block(error: BaseException, size: Size, depth: int = 0) -> str:
    """Return one exception: where it was raised, what it is, and what it says."""
    # A little more than is shown is read: a secret that is cut in two would not be recognised.
    text = _text_of(error)[: 2 * size.message_chars]
    block = _render(class_name(type(error)), text, _calls(error.__traceback__), size)
    notes = getattr(error, "__notes__", None)
    if notes or isinstance(error, BaseExceptionGroup):
        return "\n".join([block, *_notes(notes), *_members(error, size, depth)])
    return block


@lru_cache(maxsize=_MAX_CACHED_BLOCKS)
def _render(kind: str, text: str, calls: tuple[_RawCall, ...], size: Size) -> str:
    # Failures come in crowds that are raised at the same line and say the same.
    frames = list(_frames([_Call(*call) for call in calls], size))
    message = _clean(text, size.message_chars)
    return "\n".join([*([_HEADER] if frames else ()), *frames, f"{kind}: {message}" if message else kind])


def _notes(notes: object) -> Iterator[str]:
    if isinstance(notes, list | tuple):
        yield from (_clean(str(note), MAX_SOURCE_CHARS) for note in notes[:_MAX_NOTES])


def _members(error: BaseException, size: Size, depth: int) -> Iterator[str]:
    """Yield the exceptions of a group, indented."""
    if not isinstance(error, BaseExceptionGroup) or depth == MAX_GROUP_DEPTH:
        return
    for inner in error.exceptions[: size.group]:
        yield from (f"  | {line}" for line in _block(inner, size, depth + 1).splitlines())
    if len(error.exceptions) > size.group:
        yield f"  | … {len(error.exceptions) - size.group} more exceptions …"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a foreign __str__ may raise anything, and the failure must still be shown
        return ""


def _clean(text: str, limit: int) -> str:
    """Return a text without secrets and control characters, cut to a limit."""
    text = redact(text[: 2 * limit]).strip()
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _calls(trace: TracebackType | None) -> tuple[_RawCall, ...]:
    calls: list[_RawCall] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        calls.append((code.co_filename, trace.tb_lineno, code.co_qualname, library_of(code.co_filename)))
        trace = trace.tb_next
    return tuple(calls)


def _frames(calls: list[_Call], size: Size) -> Iterator[str]:
    """Yield the frames, and each run of library frames between those of the application as one line if it is folded."""
    is_own = [not call.library for call in calls]
    if True in is_own:
        # Outside of the application is the worker, which is the same each time.
        calls = calls[is_own.index(True) :]
    runs = [
        (is_folded, list(run)) for is_folded, run in groupby(calls, lambda call: size.is_folded and bool(call.library))
    ]
    shown = sum(len(run) for is_folded, run in runs if not is_folded)
    hidden = max(0, shown - size.frames)
    number = 0
    for is_folded, run in runs:
        if is_folded:
            if not hidden or number <= _OUTERMOST or number >= shown - size.frames + _OUTERMOST:
                yield _folded(run)
            continue
        for call in run:
            number += 1
            if not hidden or number <= _OUTERMOST or number > _OUTERMOST + hidden:
                yield _frame(call)
            elif number == _OUTERMOST + 1:
                yield f"  … {hidden} more frames …"


def _folded(calls: list[_Call]) -> str:
    names = list(dict.fromkeys(call.library for call in calls))
    others = ", …" if len(names) > _MAX_LIBRARIES else ""
    return f"  … {len(calls)} frame{'s' * (len(calls) > 1)} in {', '.join(names[:_MAX_LIBRARIES])}{others} …"


@lru_cache(maxsize=_MAX_CACHED_FRAMES)
def _frame(call: _Call) -> str:
    source = redact_source(linecache.getline(call.filename, call.line).strip())
    if len(source) > MAX_SOURCE_CHARS:
        source = f"{source[: MAX_SOURCE_CHARS - 1]}…"
    shown = f'  File "{short_path(call.filename)}", line {call.line}, in {call.function}'
    return f"{shown}\n    {source}" if source else shown
