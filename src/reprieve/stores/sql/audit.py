"""The audit log in a table: entries are inserted by the transaction of what they record."""

from collections.abc import Iterable

from reprieve.core.audit import AuditEntry
from reprieve.core.duration import milliseconds
from reprieve.stores.audit_pages import AuditPlace, AuditRange, AuditRow, pack_entry, page_of, plan
from reprieve.stores.protocol import AuditFilter, AuditPage, Retention
from reprieve.stores.sql.tx import SqlTx, Statements


def record_audit(tx: SqlTx, sql: Statements, entries: Iterable[AuditEntry]) -> None:
    """Insert entries. They are few: each is an action of a person."""
    for entry in entries:
        row = {
            "at": entry.at,
            "actor": entry.actor,
            "kind": entry.kind,
            "name": entry.name,
            "tenant": entry.tenant,
            "packed": pack_entry(entry),
        }
        tx.execute(sql["record"], row)


def audit_log(tx: SqlTx, sql: Statements, wanted: AuditFilter, cursor: str, limit: int) -> AuditPage:
    """Return a page of the log."""
    read = plan(wanted, cursor, limit)
    rows = [AuditRow(AuditPlace(at, seq), packed) for at, seq, packed in tx.all(*_statement(sql, read))]
    return page_of(read, rows, limit, has_more=len(rows) >= read.count)


def _statement(sql: Statements, read: AuditRange) -> tuple[str, dict[str, object]]:
    """Return the statement that reads a range, and its parameters."""
    wanted = read.wanted
    parameters: dict[str, object] = {
        "at": read.start.at,
        "seq": read.start.position,
        "end_at": read.end_at,
        "count": read.count,
    }
    match read.index:
        case "subject":
            parameters |= {"kind": wanted.kind, "name": wanted.name}
        case "actor":
            parameters["actor"] = wanted.actor
        case "tenant":
            parameters["tenant"] = wanted.tenant
        case "all":
            pass
    statement = sql["newest" if read.is_newest_first else "oldest"]
    return statement.replace("{condition}", sql[f"of_{read.index}"]), parameters


def limits(retention: Retention, max_rows: int) -> dict[str, int]:
    """Return the parameters of the statement that prunes the log."""
    return {"before": retention.now - milliseconds(retention.audit_for), "max_rows": max_rows}
