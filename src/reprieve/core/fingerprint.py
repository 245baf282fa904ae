"""The error fingerprint: it groups the failures of many jobs by cause.

Failures share a fingerprint if their type, code, in-app frames and message template are the same. The template is the
message with its variable parts masked: addresses, hosts, times, numbers. Names in code (a column, a key, an attribute)
and codes of a protocol (550 5.1.1, HTTP 502) stay: they are the cause.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

from reprieve.core.record import Record

MAX_MESSAGE_CHARS = 512  # characters of a message that are read; this bounds the cost of long messages
MAX_TEMPLATE_CHARS = 300  # characters of a template
MAX_FRAMES = 3  # innermost frames that count: outer frames differ by caller


class Frame(Record):
    """A call in the application's own code; without its line number, which changes with every release."""

    module: str
    function: str


class Fingerprint(Record):
    """A group of failures: its `id`, the same in every process, and its `template`."""

    id: str
    template: str


def fingerprint(message: str, *, type: str = "", code: str = "", frames: Sequence[Frame] = ()) -> Fingerprint:  # noqa: A002 - the field of a failure
    """Return the fingerprint of a failure; `frames` has the innermost call last, as a traceback does."""
    return _fingerprint(message, type, code, tuple(frames))


@lru_cache(maxsize=2_048)
def _fingerprint(message: str, kind: str, code: str, frames: tuple[Frame, ...]) -> Fingerprint:
    """Return a cached fingerprint: many failures have the same message."""
    template = mask(message)
    calls = [(frame.module, frame.function) for frame in frames[-MAX_FRAMES:]]
    # ascii() separates the parts whatever they hold, and escapes what UTF-8 cannot encode.
    parts = ascii((kind, code, template, calls)).encode()
    return Fingerprint(id=hashlib.blake2b(parts, digest_size=8).hexdigest(), template=template)


def mask(message: str) -> str:
    """Return the template of a text: one printable line of at most `MAX_TEMPLATE_CHARS`. It is its own template."""
    text = " ".join(message[:MAX_MESSAGE_CHARS].split())
    if not text.isprintable():
        text = " ".join("".join(c if c.isprintable() else " " for c in _ANSI.sub("", text)).split())
    # A match could begin at each character of a ruler, and look far ahead from there.
    text = _RULER.sub(r"\1", text)
    # The leading space makes the first word match like any other.
    text = _VARIES.sub(_masked, " " + text.rstrip(" ."))
    while len(text) > MAX_TEMPLATE_CHARS:
        # The cut may leave a last word that is masked, and the mask may be longer than the word.
        text = _VARIES.sub(_masked, text[: MAX_TEMPLATE_CHARS - 1] + "…")
    return text[1:]


def _masked(match: re.Match[str]) -> str:
    if match.lastgroup is None:
        return match[0]
    return f"{match.string[match.start() : match.start(match.lastgroup)]}<{match.lastgroup}>"


def _any(*patterns: str) -> str:
    return f"(?:{'|'.join(patterns)})"


def _quoted(inside: str) -> str:
    return _any(*(f"{quote}{inside.replace('Q', quote)}{quote}" for quote in "'\""))


_RULER = re.compile(r"(([^\w\s])\2{7})\2++")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

# One pass of one expression finds the variable parts. Three rules keep it cheap, and make a template its own
# template: a match begins after a character that belongs neither to a word nor to a mask; a repeated group is
# bounded or possessive (`*+`); and at the end of a match a mask counts as the word that it hides.
_BEGIN = r"""[^\w>](?=[\w'"<./+#$€£:(-])"""
_END = r"(?![\w<])"
# Most of a message is plain words; skipping them first makes it twice as fast.
_NOT_PLAIN = r"(?![^\W\d_]++[^\w\s@/=\\<-]{0,2}+(?: (?![-+]?\d)|$))"

_FILE = r"\.(?:csv|docx?|exe|gif|gz|html?|jpe?g|json|log|pdf|png|svg|tiff?|tmp|toml|txt|xlsx?|xml|ya?ml|zip)"
_ZONE = (
    r"\.(?:(?i:arpa|biz|cloud|com|dev|edu|example|gov|info|internal|local|net|org|shop|site|test|top|xyz)"
    r"|(?!db|id|js|md|py|sh|so|to)[a-z]{2})"  # a country, and not the end of a file or an attribute
)
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_TEXT = _quoted(r"[^Q<]{0,99}")

_KEPT = _any(
    r"[245]\d\d[ -][245]\.\d{1,2}\.\d{1,3}(?![\w.<])",  # 550 5.1.1
    r"""[245](?<=['"#(].)\.\d{1,2}\.\d{1,3}(?![\w.<])""",  # (#5.1.1)
    r"[345]\d\d(?= (?:[A-Z][a-z]|<)|-[\"A-Z<])",  # 404 Not Found
    r"(?:[Ss]tatus|[Cc]ode|[Ee]rror|Errno|WinError|HTTP|answered|returned|signal|failed:)"
    r"""['"]?[ :=]{1,2}['"]?-?\d{1,5}""" + _END,
    r"(?:[Uu][Tt][Ff]-?\d+|[Ll]atin-?1|base64|[Ss][Hh][Aa]-?\d+|[Mm][Dd]5|IPv[46]|[Ss]3|EC2|OAuth2|urllib3"
    r"|HTTP/\d(?:\.\d)?|TLSv1(?:\.\d)?|x86_64)" + _END,
)
_URL = _any(
    r"""['"]?[A-Za-z][A-Za-z0-9+.-]{1,20}+://(?:\[[^\]\s<]{0,99}\])?[^\s'"<>)\]]+['"]?""",
    r"/(?<=url: .)[^\s<>]*",
    r"arn:[^\s'\"`,<>]+",
)
_VALUE = _any(
    r"(?<=server at )" + _TEXT + r"(?: \([^)<]{0,99}\))?",  # PostgreSQL: "db" (10.0.0.7)
    r"\((?<=\)=.)[^)<]{0,299}\)",  # PostgreSQL: Key (email)=(ana@acme.example)
    r"\((?<=contains .)[^<]{0,299}\)",  # PostgreSQL: Failing row contains (42, null)
    r"input_value=[^<]{0,299}?(?=, input_type)",  # pydantic
    # A user's input follows a colon, unless the text names the wrong argument or type.
    r"(?<=[\w)]: )(?<!argument: )(?<!arguments: )(?<!type: )(?<!input: )b?" + _TEXT,
    _TEXT + r"(?= is not a valid )",
    # A quoted word that cannot be a name in code.
    _quoted(
        rf"(?=[^\sQ<]{{0,99}}\w)(?=[^\sQ<]{{0,99}}(?:[^A-Za-z_.\sQ<]|(?:localhost|{_FILE}|{_ZONE})Q))[^\sQ<]{{1,99}}"
    ),
)
_EMAIL = r"<?[\w.+'%=-]{1,64}+@[\w-][\w.-]{0,200}>?"
# A host name and an address share one mask, because one slot of a message holds either.
_HOST = _any(
    r"HTTPS?ConnectionPool\(host='[^'<]{0,99}', port=\d+\)",
    _any(
        r"(?:[\w-]{1,63}+\.){0,6}[\w-]{1,63}+" + _ZONE + r"(?!\.?[\w<])",
        r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}" + _END,
        r"(?=[0-9a-fA-F:]{0,40}::|(?:[0-9a-fA-F]{1,4}:){7})[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}" + _END,
        r"localhost(?=:\d)",
    )
    + r"(?:\[[0-9a-fA-F.:]+\])?(?::\d{1,5}(?![\w<]))?"  # Postfix: mx.acme.example[192.0.2.7]:25
    + r"(?: \d{4}-\d\d-\d\dT\S{8,20} [0-9A-F]{16})?",  # Exchange: its host, at times with a stamp and a trace
)
_PATH = _any(
    r"(?:[A-Za-z]:\\|\.{0,2}/)[^\s'\"<>,;)]+",
    r"[\w()-]{1,99}+(?:/[\w()-]{1,99}+){0,9}+" + _FILE + _END,
)
# Numbers, ids, dates, amounts and durations share one mask for the same reason.
_NUMBER = (
    rf"(?:[+#-](?<!\w.)|(?:R|US)?[$€£] ?|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), )?(?:{_MONTH} )?)"
    + _any(
        r"\d[A-Za-z\d]*+",
        r"(?=[a-f]*+\d)[0-9a-f]{8,}+(?![^\W_]|<)",
        r"(?:[A-Z]{1,5}+-){1,3}(?=[A-Z]*+\d)[A-Za-z\d]++",  # ORD-2025
        r"[A-Za-z]{2}-[A-Za-z]{4,10}-\d" + _END,  # eu-west-1
        r"[a-z]{2,5}_(?=[A-Za-z]*+\d)[A-Za-z0-9]{8,}+",  # cus_NffrFeUfNV2Hib
        r"(?:[A-Za-z]{1,2}\d|[A-Za-z]++\d++[A-Za-z]++\d)[A-Za-z\d]*+",  # x2k4p
        r"(?=[A-Za-z+/]{0,99}+\d)(?=[a-z\d+/]{0,99}+[A-Z])(?=[A-Z\d+/]{0,99}+[a-z])[A-Za-z\d+/]{16,}+",
    )
    + _any(
        r"[.,:/_+=-]{1,2}[A-Za-z]*+\d[A-Za-z\d]*+",  # 2025-03-11T10:00:00
        r",? [+-]?\d[A-Za-z\d]*+",  # 17, 44, 98
        r" \(\d{1,4}\) \d[A-Za-z\d]*+",  # +55 (11) 98765-4321
        r"-[A-Za-z]{1,8}(?=[-.]\d)",  # 1.0-beta.3
        r"-[A-Za-z\d]{1,3}" + _END,
        r"={1,2}" + _END,
        r" ?(?:%|(?:[KMGT]i?B|bytes|ms|s|sec|seconds|min|minutes|h|hours|d|days|UTC|GMT)(?![\w<]))",
        rf" {_MONTH}(?= \d)",
    )
    + "*+"
)
_VARIES = re.compile(
    _BEGIN
    + _NOT_PLAIN
    + _any(
        _KEPT,
        f"(?P<url>{_URL})",
        f"(?P<value>{_VALUE}(?:, {_TEXT})*+)",
        f"(?P<email>{_EMAIL}(?:, {_EMAIL})*+)",
        f"(?P<host>{_HOST})",
        f"(?P<path>{_PATH})",
        rf"(?:|[^\W\d]++)(?P<n>{_NUMBER})",
    )
)
