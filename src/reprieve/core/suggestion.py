"""Suggestions for mistyped words: "did you mean …?"."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the known word that is most similar to this one, or None if no word is similar enough.

    Case and a dotted prefix are ignored in both words. `likeness` is the least similarity, from 0 to 1.
    """
    by_form: dict[str, str] = {}
    for one in known:
        for form in (one.lower(), one.lower().rpartition(".")[2]):
            by_form.setdefault(form, one)
    lowered = word.lower()
    for form in (lowered, lowered.rpartition(".")[2]):
        if close := get_close_matches(form, by_form, n=1, cutoff=likeness):
            return by_form[close[0]]
    return None


def suggest(word: str, known: Iterable[str], what: str) -> str:
    """Return "did you mean …?", or the list of known words: "the settings are …"."""
    words = list(known)
    close = nearest(word, words)
    if close is not None:
        return f"did you mean {close}?"
    return f"the {what} are {', '.join(words)}" if words else f"there are no {what}"
