"""Text that people, tasks and dependencies supply, as it is stored, logged and shown: one printable line, not too long.

Every such text goes through here before it reaches a store or a terminal, so that no other module has to handle 10 MB
of control characters.
"""

import re
from functools import lru_cache
from typing import Final

MAX_TEXT_CHARS: Final = 2_000
"""Characters of a reason or message that are kept."""

MAX_CODE_CHARS: Final = 80
"""Characters of an error code, or of a single word that may be the name of an error, that are kept."""

MAX_PERSON_CHARS: Final = 255
"""Characters of the name of a person that are kept."""

_CUT: Final = "…".encode()

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")


def clean(text: str, longest: int = MAX_TEXT_CHARS) -> str:
    """Return a text as one printable line of at most `longest` characters; a text that is cut says so at its end."""
    if len(text) <= longest:
        return _one_line(text)
    mark = f"… (cut, of {len(text):,} characters)"
    line = _one_line(text[: longest - len(mark)])
    return line and line + mark


def clean_code(text: str) -> str:
    """Return an error code as one printable word or line of at most `MAX_CODE_CHARS`."""
    return _one_line(text[:MAX_CODE_CHARS])


def last_lines(text: str, most_bytes: int) -> str:
    """Return the end of a text, as whole lines of at most so many bytes of UTF-8; a text that is cut begins with `…`.

    Of a last line that is too long by itself its beginning is kept. What UTF-8 cannot hold becomes a question mark.
    """
    if len(text) <= most_bytes and text.isascii():
        return text
    data = text.rstrip().encode(errors="replace")
    if len(data) <= most_bytes:
        return data.decode()
    start = data.find(b"\n", len(data) - most_bytes + len(_CUT))
    if start >= 0:
        return (_CUT + data[start:]).decode()
    last = data[data.rfind(b"\n") + 1 :]
    return (last[: most_bytes - len(_CUT)]).decode(errors="ignore") + _CUT.decode()


@lru_cache(maxsize=512)
def _one_line(text: str) -> str:
    # Many failures have the same message.
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else " " for letter in _COLOUR.sub(" ", text))
    return " ".join(text.split())
