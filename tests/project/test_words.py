"""Words that the project no longer uses do not come back."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

RETIRED = {
    "bell": "notifier, notification",
    "ear": "listener",
    "crew": "connection pool",
    "tour": "partitioned claim",
    "shelf": "lane",
    "misfit": "hash collision",
    "wish": "cancel request",
    "whoever": "the caller, a worker …",
    "somebody": "a person, another transaction …",
    "anybody": "a person, another process …",
    "nobody": "no worker, no caller …",
    "those who": "the callers, the workers …",
    "mend": "fix",
}
"""Retired words, and what to write instead."""

_COMMENT = re.compile(r"<!--[^\n]*?-->")
"""A comment of a page names the test of a promise."""

_WORD = re.compile(rf"(?<![A-Za-z])({'|'.join(RETIRED)})s?(?![A-Za-z])", re.IGNORECASE)


def texts() -> list[Path]:
    """Return sources, tests and pages."""
    folders = [ROOT / name for name in ("src", "tests", "benchmarks", "scripts", "examples")]
    sources = [path for folder in folders for kind in ("py", "sql", "lua") for path in folder.rglob(f"*.{kind}")]
    return sorted({*sources, *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")} - {Path(__file__)})


def test_retired_words_do_not_come_back() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: write {RETIRED[match[1].lower()]!r} for {match[0]!r}"
        for path in texts()
        for number, line in enumerate(_COMMENT.sub("", path.read_text()).splitlines(), 1)
        for match in _WORD.finditer(line)
    ]
    assert not found, "\n" + "\n".join(found)
