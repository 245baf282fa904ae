"""Redaction: remove secrets from texts for logs and lists.

When in doubt, a text is hidden. Only `MAX_TEXT_CHARS` are read, and every repetition in the patterns is bounded, so
the time is linear in the length of the text.
"""

import re
from functools import lru_cache

MAX_TEXT_CHARS = 4_096
"""Characters of a text that are read; the rest is cut off."""

MAX_URL_CHARS = 200
"""Characters of a URL that are shown."""

HIDDEN = "***"

_NAME = (
    r"(?:passw(?:or)?d|passwd|passphrase|\bpass\b|pwd|secret|token|credential|authorization|cookie"
    r"|(?:api|access|private|signing|encryption)[-_ ]?key)"
    r"[\w-]{0,40}+"
)
_IS = r"[\"']?\s{0,3}(?:=>|[=:])\s{0,3}"
_LITERAL = r"[a-zA-Z]{0,2}(?:\"(?:[^\"\\\n]|\\.){0,1000}\"?|'(?:[^'\\\n]|\\.){0,1000}'?)"
_SCHEME = r"(?:(?:Bearer|Basic|Digest|Token)\s{1,3})?"

_URL_PASSWORD = re.compile(r"(://[^\s:@/'\"]{0,100}:)(?!\d{1,5}/)(?=[^\s'\"@]{0,500}+@)[^\s'\"]{1,500}@")
_NAMED_VALUE = re.compile(rf"({_NAME}{_IS})(?:{_LITERAL}|{_SCHEME}[^\s,;&)\]}}\"']{{1,1000}})", re.IGNORECASE)
_HEADER = re.compile(r"\b((?:set-)?cookie|(?:proxy-)?authorization)(\s{0,3}:\s{0,3})[^\n\"']{1,2000}", re.IGNORECASE)
"""The whole value of such a header is secret."""

_LOGIN = re.compile(r"(\blogin\s?\(|\bauth\s?=\s?\()[^)\n]{0,500}", re.IGNORECASE)
"""Arguments of a login in a line of source: the user name is hidden like the password."""

_NAMED_LITERAL = re.compile(rf"({_NAME}{_IS}){_LITERAL}", re.IGNORECASE)
_CREDENTIALS = re.compile(
    r"\b(Bearer|Basic|Digest)(\s{1,3})(?=[A-Za-z.]{0,200}[\d_~+/=-])[\w.~+/=-]{8,1000}", re.IGNORECASE
)
_KNOWN_SHAPE = re.compile(
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"  # Amazon
    r"|\bgh[pousr]_[A-Za-z0-9]{20,255}|\bgithub_pat_\w{20,255}"
    r"|\b[srp]k[-_][A-Za-z0-9_-]{16,255}"  # OpenAI, Stripe
    r"|\bxox[abeoprs]-[\w-]{10,255}"  # Slack
    r"|\bAIza[\w-]{30,100}"  # Google
    r"|\bSG\.[\w-]{16,100}\.[\w-]{16,100}"  # SendGrid
    r"|\beyJ[\w-]{10,1000}\.[\w-]{5,2000}\.[\w-]{0,1000}"  # a JSON web token
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,4000}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
)

_KNOWN_SCHEME = re.compile(r"\s{0,9}(?:redis|valkey|postgres|sqlite)[a-z+]{0,40}", re.IGNORECASE)
_SCHEME_OF_URL = re.compile(rf"(?:{_KNOWN_SCHEME.pattern}|[a-z][a-z0-9+.-]{{0,40}})://", re.IGNORECASE)
_FILE_URL = re.compile(r"sqlite:///", re.IGNORECASE)
"""A URL without a host, so that an `@` is part of the path."""

_AFTER_COLON = re.compile(r"([^:?#\[]*:)(?!//?[^/:]|\d{1,5}(?:[/?#,\s]|$)|$).*", re.DOTALL)
"""What follows the first colon of a URL without `@`, if it is neither a port nor a path: it may be a password."""

_QUERY = re.compile(r"([?&][^=&]*(?:passw|secret|token|key|listen)[^=&]*=)[^&#]*", re.IGNORECASE)
"""`listen` is a URL inside the URL, with a password of its own."""

_PAIR = re.compile(
    rf"((?:pass|pwd|secret|token|auth)[\w-]{{0,40}}\s{{0,3}}[=:]\s{{0,3}})(?:{_LITERAL}|[^\s&#]+)", re.IGNORECASE
)
"""A secret in a connection string of key words, `host=… password=…`."""


_NAMES = ("pass", "pwd", "secret", "token", "credential", "authorization", "cookie", "key")
_SHAPES = ("akia", "asia", "gh", "k-", "k_", "xox", "aiza", "sg.", "eyj", "-----begin")
_SCHEMES = ("bearer", "basic", "digest")
"""Substrings, in lower case, without which no pattern can match; most texts have none of them."""


def redact(text: str) -> str:
    """Return a text without passwords, tokens and keys, cut to `MAX_TEXT_CHARS`."""
    return _redact(text[:MAX_TEXT_CHARS])


def redact_source(line: str) -> str:
    """Return a line of source code without the secrets in it.

    Only literals are hidden: `password=settings.password` is not a secret.
    """
    return _hide(_LOGIN.sub(_hide_literals, line[:MAX_TEXT_CHARS]), _NAMED_LITERAL)


def _hide_literals(call: re.Match[str]) -> str:
    return call[1] + re.sub(
        _LITERAL, lambda literal: HIDDEN if literal[0][-1:] in "\"'" else literal[0], call[0][len(call[1]) :]
    )


def mask_url(url: str) -> str:
    """Return a URL, cut to `MAX_URL_CHARS`, without its password and other values that may be secret.

    A text that is not quite a URL is masked too: `redis//:password@host`, `host=… password=…`.
    """
    hidden = _PAIR.sub(rf"\1{HIDDEN}", _QUERY.sub(rf"\1{HIDDEN}", _mask_user(url[:MAX_TEXT_CHARS])))
    return "".join(letter if letter.isprintable() else "?" for letter in hidden[:MAX_URL_CHARS])


def _mask_user(url: str) -> str:
    """Return a URL without what may be a password before its host."""
    known = _SCHEME_OF_URL.match(url)
    if _FILE_URL.match(url):
        return url
    before, at, host = url.rpartition("@")
    if at and known is None:
        # The name of the scheme is no secret; anything else may be.
        name = _KNOWN_SCHEME.match(before)
        return f"{name[0] if name else ''}{HIDDEN}@{host}"
    scheme = known[0] if known else ""
    if at:
        user, colon, _ = before[len(scheme) :].partition(":")
        # A password alone is often written in the place of the user.
        shown = f"{user}:{HIDDEN}" if colon else user if "postgres" in scheme.lower() else HIDDEN
        return f"{scheme}{shown}@{host}"
    if "sqlite" in url[: len(scheme) or None].lower():
        return url
    rest = url[len(scheme) :]
    found = _AFTER_COLON.match(rest)
    return url if found is None else f"{scheme}{found[1]}{HIDDEN}"


@lru_cache(maxsize=512)
def _redact(text: str) -> str:
    # Many failures have the same message.
    return _hide(text, _NAMED_VALUE)


def _hide(text: str, named: re.Pattern[str]) -> str:
    """Hide values that follow the name of a secret, and values in the format of a known secret."""
    lower = text.lower()
    if "cookie" in lower or "authorization" in lower:
        text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
    if any(name in lower for name in _NAMES):
        text = named.sub(rf"\1{HIDDEN}", text)
    if "://" in lower and "@" in lower:
        text = _URL_PASSWORD.sub(rf"\1{HIDDEN}@", text)
    if any(scheme in lower for scheme in _SCHEMES):
        text = _CREDENTIALS.sub(rf"\1\2{HIDDEN}", text)
    if any(shape in lower for shape in _SHAPES):
        text = _KNOWN_SHAPE.sub(HIDDEN, text)
    return text
