"""The error fingerprint: what the failures of millions of jobs have in common, for a person to work with."""

import hashlib
import re
from collections.abc import Sequence

from reprieve.core.record import Record

CLIP = 1_024
LIMIT = 300

_NUMBER = r"""
    (?:(?:\d[^\W_]*|[^\W\d_]{1,2}\d[^\W_]*|[^\W\d_]+\d+[^\W\d_]+\d[^\W_]*)
"""

_TLD = "com|net|org|edu|gov|mil|info|biz|io|dev|app|ai|co|eu|br|pt|es|fr|de|it|nl|be|at|ch|uk|ie|se|fi|dk|pl|cz|ru|us|ca|mx|ar|cl|au|nz|jp|cn|tw|kr|hk|sg|za|local|internal|localdomain|arpa|example|test|invalid"

_PATTERN = re.compile(
    rf"""
    (?P<keep>
        <[a-z]{{1,6}}>
      | \b(?:Errno|WinError|[Ss]tatus|[Cc]ode|HTTP|[Ee]rror|answered|returned|signal|failed:|Rejeição)(?:\ [Ee]rror|\ code)?['"]?[ :=]{{1,2}}['"]?-?\d{{1,5}}\b
      | (?<=')[1-5]\d\d(?=\ [A-Z])
      | (?<=['"#(])[245]\.\d{{1,2}}\.\d{{1,3}}(?![\w.])
      | \b(?:[Uu][Tt][Ff]-?\d+|latin-?1|base64|[Ss][Hh][Aa]-?\d+|[Mm][Dd]5|IPv[46]|S3|s3(?=:)|EC2|HTTP/\d(?:\.\d)?|TLSv1(?:\.\d)?|x86_64|OAuth2?)\b
      | "[A-Za-z_][A-Za-z_.]*" (?!\ is\ not\ a)
      | (?<![\w:]\ )(?<![\w>])'[A-Za-z_][A-Za-z_.]*' (?!\ is\ not\ a)
    )
  | (?P<reply> (?<![\w.])[245]\d\d[ -][245]\.\d{{1,2}}\.\d{{1,3}}(?![\w.]) | ^\(?[1-5]\d\d(?=[ -]["A-Z<]|,))
  | (?P<url> [A-Za-z][A-Za-z0-9+.-]{{1,20}}://(?:\[[^\]\s]*\])?[^\s'"<>)\]]* | data:[\w/+.-]+;base64,\S+ | arn:[^\s'"`,]+ | (?<=url:\ )/\S*)
  | (?P<str>
        ['"](?<=[\w)]:\ .)(?<!argument:\ .)(?<!arguments:\ .)(?<!type:\ .)(?<!input:\ .) (?:(?<=')[^']{{0,200}}'|(?<=")[^"]{{0,200}}")
      | (?<=input_value=).{{0,200}}?(?=,\ input_type)
      | (?<=\)=\()[^)]{{0,200}}(?=\))
      | (?<=contains\ \().{{0,300}}(?=\))
      | '[^\s']{{0,100}}[\d@-][^\s']{{0,100}}'
      | "[^\s"]{{0,100}}[\d@-][^\s"]{{0,100}}"
    )
  | (?P<email> <?[\w.+'%=-]{{1,64}}@[\w-][\w.-]{{0,200}}>?)
  | (?P<host>
        (?<![\w>.])(?:(?:[\w-]{{1,63}}\.){{1,8}}(?:{_TLD})\b|\d{{1,3}}\.\d{{1,3}}\.\d{{1,3}}\.\d{{1,3}}\b|[0-9a-fA-F]{{0,4}}:(?:[0-9a-fA-F]{{0,4}}:){{1,6}}[0-9a-fA-F]{{0,4}}|localhost\b)\.?
        (?:\[[0-9a-fA-F.:]+\])?(?::\d{{1,5}}\b)?
      | (?:(?<=host\ )|(?<=to\ )|(?<=from\ )|(?<=host='))[\w.-]{{1,100}}(?::\d{{2,5}}\b|(?='))
    )
  | (?P<path> (?<![\w>/.])(?:[A-Za-z]:\\|\.{{0,2}}/)[^\s'"<>,;)]+ | [\w()-]{{1,100}}(?:/[\w()-]{{1,100}}){{0,10}}\.(?:pdf|png|jpe?g|gif|svg|csv|xml|html?|txt|json|xlsx?|docx?|zip|gz|exe|toml)\b)
  | (?P<n> (?:(?<![\w>])[+#-]|n[º°]\ |(?:R|US)?[$€£]\ ?)?
        (?:0x[0-9a-fA-F]+
         |(?<![\w>])[0-9a-f]{{8,64}}\b
         |(?<![\w>])(?:[A-Z]{{1,5}}-){{1,3}}\d[\w/-]*
         |(?<![\w>])[A-Za-z]{{2}}-[A-Za-z]{{4,10}}-\d\b
         |(?<![\w>])[a-z]{{2,5}}_(?=[A-Za-z]*\d)[A-Za-z0-9]{{8,}}
         |(?<![\w>])(?:[A-Za-z]{{1,2}}\d|[A-Za-z]+\d+[A-Za-z]+\d)[^\W_]*
         |\d[^\W_]*)
        (?:[.,:/_+-]{{1,2}}\d[^\W_]*|\ ?%|,?\ \d[^\W_]*|-\w{{1,3}}\b|\ (?:[KMGT]?i?B|bytes|ms|s|sec|seconds|min|minutes|h|hours|d|days)\b)*
    )
    """,
    re.VERBOSE,
)


class Frame(Record):
    module: str
    function: str


class Fingerprint(Record):
    id: str
    template: str


def _masked(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind == "keep":
        return match[0]
    if kind == "reply":
        return match[0].replace("-", " ")
    return f"<{kind}>"


def mask(message: str) -> str:
    text = " ".join(message[:CLIP].split())
    text = _PATTERN.sub(_masked, text)
    return text[:LIMIT]


def fingerprint(message: str, *, type: str = "", code: str = "", frames: Sequence[Frame] = ()) -> Fingerprint:
    template = mask(message)
    parts = ascii((type, code, template, [(f.module, f.function) for f in frames[-3:]]))
    return Fingerprint(id=hashlib.blake2b(parts.encode(), digest_size=8).hexdigest(), template=template)
