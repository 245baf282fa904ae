"""SQL statements from the files in `sql/`."""

from functools import cache
from importlib.resources import files

from reprieve.stores.postgres.functions import with_hashed_names


@cache
def statements(name: str) -> dict[str, str]:
    """Return the statements of `sql/<name>.sql` by the name in the `-- name:` line above each."""
    text = with_hashed_names((files(__package__ or "") / "sql" / f"{name}.sql").read_text("utf-8"))
    parts = [part.split("\n", 1) for part in text.split("-- name: ")[1:]]
    return {title.strip(): body.strip().rstrip(";") for title, body in parts}
