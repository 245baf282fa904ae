"""Groups of failures: what the failures with one fingerprint look like, kept once."""

from collections.abc import Sequence

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.stores.failure_record import pack_group, unpack_group
from reprieve.stores.protocol import FailureGroup, Retention
from reprieve.stores.sql.tx import SqlTx, Statements


def describe(tx: SqlTx, sql: Statements, groups: Sequence[FailureGroup]) -> None:
    """Keep groups that are new, and when the others were last seen."""
    # In one order, so that two transactions never wait for each other.
    for group in sorted(groups, key=lambda group: group.fingerprint):
        row = {"fingerprint": group.fingerprint, "last_seen_at": group.last_seen_at, "packed": pack_group(group)}
        tx.execute(sql["keep"], row)


def groups(tx: SqlTx, sql: Statements, fingerprints: Sequence[str]) -> list[FailureGroup]:
    """Return the groups with these fingerprints that are kept and can be read."""
    rows = tx.all(sql["find"], {"fingerprints": msgspec.json.encode(fingerprints).decode()})
    found = (unpack_group(packed, last_seen_at) for packed, last_seen_at in rows)
    return [group for group in found if group is not None]


def limits(retention: Retention, max_rows: int) -> dict[str, int]:
    """Return what the statement that prunes them is given."""
    before = retention.now - milliseconds(retention.failures_for)
    return {"before": before, "kept": retention.failures, "max_rows": max_rows}
