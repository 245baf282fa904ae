"""Names that begin with a prefix, from the indexes of limiters, tenants and causes."""

from reprieve.stores.name_cursor import AFTER_ALL_NAMES
from reprieve.stores.protocol import NameSubject
from reprieve.stores.sql.tx import SqlTx, Statements


def read_names(tx: SqlTx, sql: Statements, subject: NameSubject, prefix: str, limit: int) -> list[str]:
    """Return the first names of a subject that begin with a prefix."""
    wanted = {"subject": subject, "start": prefix, "stop": prefix + AFTER_ALL_NAMES, "limit": limit}
    match subject:
        case "tenant":
            queues = [queue for (queue,) in tx.all(sql["queues"])]
            rows = [row for queue in queues for row in tx.all(sql["tenants"], {**wanted, "queue": queue})]
        case "code":
            rows = [row for fate in (0, 1) for row in tx.all(sql["codes"], {**wanted, "fate": fate})]
        case _:
            rows = list(tx.all(sql["limited"], wanted))
    if "uncounted" in sql and subject != "code":
        rows += tx.all(sql["uncounted"], wanted)
    return sorted({name for (name,) in rows if name})[:limit]
