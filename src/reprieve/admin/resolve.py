"""Short job ids, as in git: the first or last digits of an id, if only one job has them."""

import re
from collections.abc import Sequence
from typing import TypeAlias

from reprieve.clock import Clock
from reprieve.core.ids import parse_id
from reprieve.errors import AmbiguousId, InvalidId, JobNotFound
from reprieve.stores.protocol import Filter, Store

MIN_DIGITS = 4
"""Hex digits that a short id must have."""

SHOWN_DIGITS = 8
"""Hex digits by which a job is shown: the last of its id, since ids of the same moment begin with the same digits."""

MAX_SEARCHED_JOBS = 1_000_000
"""Jobs of a store that is searched for a short id; where there are more, the whole id is needed."""

MAX_CANDIDATES = 5
"""Jobs that the error of an ambiguous id names."""

Candidates: TypeAlias = dict[str, str]
"""Jobs that a short id may mean: their whole ids, and how an error names each."""

Unresolved: TypeAlias = InvalidId | JobNotFound | AmbiguousId
"""Why a text names no job."""

_PAGE_JOBS = 5_000
_PART = re.compile(rf"[0-9a-f]{{{MIN_DIGITS},31}}")


def short(job_id: str, digits: int = SHOWN_DIGITS) -> str:
    """Return the last hex digits of an id."""
    return job_id.replace("-", "")[-digits:]


def digits_for(job_ids: Sequence[str]) -> int:
    """Return how many digits distinguish all of these ids, at least `SHOWN_DIGITS`."""
    distinct = set(job_ids)
    digits = SHOWN_DIGITS
    while len({short(job_id, digits) for job_id in distinct}) < len(distinct):
        digits += 1
    return digits


async def resolve(store: Store, clock: Clock, texts: Sequence[str]) -> list[str]:
    """Return the whole id for each text: an id, or 4 or more hex digits at the start or end of one job's id.

    Raises the first `InvalidId`, `JobNotFound` or `AmbiguousId`.
    """
    ids: list[str] = []
    for resolved in await resolve_each(store, clock, texts):
        if isinstance(resolved, Unresolved):
            raise resolved
        ids.append(resolved)
    return ids


async def resolve_each(store: Store, clock: Clock, texts: Sequence[str]) -> list[str | Unresolved]:
    """Return for each text the whole id, or the error that says why it names no job.

    One pass through the store finds all of them.
    """
    parts: dict[str, str] = {}
    resolved: dict[str, str | Unresolved] = {}
    for text in texts:
        try:
            part = _part_of(text)
        except (InvalidId, JobNotFound) as error:
            resolved[text] = error
            continue
        if part:
            parts[text] = part
        else:
            resolved[text] = parse_id(text)
    found: dict[str, Candidates] = {text: {} for text in parts}
    try:
        searched = await _search(store, clock, parts, found) if parts else 0
    except JobNotFound as error:
        resolved |= dict.fromkeys(parts, error)
        parts = {}
    for text in parts:
        try:
            resolved[text] = _only(text, found[text], searched)
        except (AmbiguousId, JobNotFound) as error:
            resolved[text] = error
    return [resolved[text] for text in texts]


def _part_of(text: str) -> str:
    """Return the hex digits of a short id, empty for a whole id; raises `InvalidId` or `JobNotFound`."""
    digits = text.strip().lower().replace("-", "")
    if _PART.fullmatch(digits):
        return digits
    try:
        parse_id(text)
    except InvalidId:
        message = (
            f"{text[:80]!r} is not a job id; give a whole one, or {MIN_DIGITS} or more of the hex digits "
            "that it begins or ends with"
        )
        raise InvalidId(message) from None
    return ""


async def _search(store: Store, clock: Clock, parts: dict[str, str], found: dict[str, Candidates]) -> int:
    """Search the store until every part has its candidates; return how many jobs the store has.

    Ids begin with the time, so a few first digits fit every job: only as many candidates are kept as an error names.
    """
    await clock.tune()
    now, cursor = clock.now(), ""
    total = sum((await store.tally("status", Filter(), now)).counts.values())
    if total > MAX_SEARCHED_JOBS:
        message = f"{total:,} jobs are too many to search for {', '.join(parts)}; give the whole id"
        raise JobNotFound(message)
    wanted = Filter(id_parts=tuple(parts.values()))
    while True:
        page = await store.find(wanted, now, cursor, _PAGE_JOBS)
        for job, status in zip(page.jobs, page.statuses, strict=True):
            digits = job.id.replace("-", "")
            for text, part in parts.items():
                if len(found[text]) <= MAX_CANDIDATES and (digits.endswith(part) or digits.startswith(part)):
                    # A job that changes while the pages are read may be on two of them.
                    found[text][job.id] = f"{job.id} ({job.task}, {status})"
        cursor = page.cursor
        if not cursor or all(len(candidates) > MAX_CANDIDATES for candidates in found.values()):
            return total


def _only(text: str, candidates: Candidates, searched: int) -> str:
    if not candidates:
        message = (
            f"no job has an id that begins or ends with {text} ({searched:,} jobs searched); it may have been pruned"
        )
        raise JobNotFound(message)
    if len(candidates) > 1:
        shown = ", ".join([*candidates.values()][:MAX_CANDIDATES])
        more = ", and more" if len(candidates) > MAX_CANDIDATES else ""
        message = f"{text} is the id of several jobs: {shown}{more}; give more of it"
        raise AmbiguousId(message)
    return next(iter(candidates))
