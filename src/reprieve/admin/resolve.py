"""Job ids in short, as git has them: any part of an id's beginning or end that only one job has."""

import re
from collections.abc import Sequence
from typing import TypeAlias

from reprieve.clock import Clock
from reprieve.core.ids import parse_id
from reprieve.errors import AmbiguousId, InvalidId, JobNotFound
from reprieve.stores.protocol import Filter, Store

SHORTEST = 4
"""Hex digits of a short id at the least."""

SHOWN = 8
"""Hex digits by which a job is shown: the last of its id, since ids of one moment begin alike."""

MAX_LOOKED_AT = 1_000_000
"""Jobs that are looked through for a short id; where there are more, the whole id is wanted."""

MAX_CANDIDATES = 5
"""Jobs that an ambiguous id is answered with."""

Candidates: TypeAlias = dict[str, str]
"""Jobs that a short id may mean: by their whole ids, how an error names them."""

Unresolved: TypeAlias = InvalidId | JobNotFound | AmbiguousId
"""Why a text names no job."""

_PAGE = 5_000
_PART = re.compile(rf"[0-9a-f]{{{SHORTEST},31}}")


def short(job_id: str, digits: int = SHOWN) -> str:
    """Return the last hex digits of an id."""
    return job_id.replace("-", "")[-digits:]


def digits_for(job_ids: Sequence[str]) -> int:
    """Return how many digits tell all of these ids apart; never fewer than are shown of one alone."""
    distinct = set(job_ids)
    digits = SHOWN
    while len({short(job_id, digits) for job_id in distinct}) < len(distinct):
        digits += 1
    return digits


async def resolve(store: Store, clock: Clock, texts: Sequence[str]) -> list[str]:
    """Return the whole id for each text: an id, or 4 or more hex digits that the id of one job begins or ends with.

    Raises the first `InvalidId`, `JobNotFound` or `AmbiguousId`.
    """
    ids: list[str] = []
    for answer in await resolve_each(store, clock, texts):
        if isinstance(answer, Unresolved):
            raise answer
        ids.append(answer)
    return ids


async def resolve_each(store: Store, clock: Clock, texts: Sequence[str]) -> list[str | Unresolved]:
    """Return for each text the whole id, or the error that says why it names no job.

    All parts are looked for in one pass through the store.
    """
    parts: dict[str, str] = {}
    answers: dict[str, str | Unresolved] = {}
    for text in texts:
        try:
            part = _part_of(text)
        except InvalidId as error:
            answers[text] = error
            continue
        if part:
            parts[text] = part
        else:
            answers[text] = parse_id(text)
    found: dict[str, Candidates] = {text: {} for text in parts}
    try:
        looked_at = await _search(store, clock, parts, found) if parts else 0
    except JobNotFound as error:
        answers |= dict.fromkeys(parts, error)
        parts = {}
    for text in parts:
        try:
            answers[text] = _only(text, found[text], looked_at)
        except (AmbiguousId, JobNotFound) as error:
            answers[text] = error
    return [answers[text] for text in texts]


def _part_of(text: str) -> str:
    """Return the hex digits of a short id; empty for a text of any other kind, which is a whole id or none."""
    digits = text.strip().lower().replace("-", "")
    if _PART.fullmatch(digits):
        return digits
    try:
        parse_id(text)
    except InvalidId:
        message = (
            f"{text[:80]!r} is not a job id; give a whole one, or {SHORTEST} or more of the hex digits "
            "that it begins or ends with"
        )
        raise InvalidId(message) from None
    return ""


async def _search(store: Store, clock: Clock, parts: dict[str, str], found: dict[str, Candidates]) -> int:
    """Look through the store until it is known of each part which job it means; return how many jobs there are.

    Ids begin with the time, so a short beginning fits every job: no more candidates are kept than an error names.
    """
    await clock.tune()
    now, cursor = clock.now(), ""
    total = sum((await store.tally("status", Filter(), now)).values())
    if total > MAX_LOOKED_AT:
        message = f"{total:,} jobs are too many to look through for {', '.join(parts)}; give the whole id"
        raise JobNotFound(message)
    wanted = Filter(id_parts=tuple(parts.values()))
    while True:
        page = await store.find(wanted, now, cursor, _PAGE)
        for job, status in zip(page.jobs, page.statuses, strict=True):
            digits = job.id.replace("-", "")
            for text, part in parts.items():
                if len(found[text]) <= MAX_CANDIDATES and (digits.endswith(part) or digits.startswith(part)):
                    # A job that moves while the pages are read may be met twice.
                    found[text][job.id] = f"{job.id} ({job.task}, {status})"
        cursor = page.cursor
        if not cursor or all(len(candidates) > MAX_CANDIDATES for candidates in found.values()):
            return total


def _only(text: str, candidates: Candidates, looked_at: int) -> str:
    if not candidates:
        message = f"no job has an id that begins or ends with {text} (looked at {looked_at:,}); it may have been pruned"
        raise JobNotFound(message)
    if len(candidates) > 1:
        shown = ", ".join([*candidates.values()][:MAX_CANDIDATES])
        more = ", and more" if len(candidates) > MAX_CANDIDATES else ""
        message = f"{text} is the id of several jobs: {shown}{more}; give more of it"
        raise AmbiguousId(message)
    return next(iter(candidates))
