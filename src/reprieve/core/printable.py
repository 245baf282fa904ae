"""Texts for terminals: a terminal obeys control characters, and those that turn the direction of a line."""

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Not the tab and the line feed."""

_CONTROLS_IN_JSON = re.compile(r"[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Those that JSON may hold as they are."""


def printable(text: str) -> str:
    """Return a text with a space for every character that a terminal obeys, other than tabs and line feeds."""
    return text if text.isprintable() else _CONTROLS.sub(" ", text)


def printable_json(document: str) -> str:
    """Return a JSON document with escapes for every character that a terminal obeys; its meaning is the same."""
    if document.isascii() and "\x7f" not in document:
        return document
    return _CONTROLS_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)
