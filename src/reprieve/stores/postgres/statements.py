"""SQL from the files beside this module, each a list of named statements."""

from functools import cache
from importlib.resources import files


@cache
def statements(name: str) -> dict[str, str]:
    """Read `sql/<name>.sql`: statements by the name in the `-- name:` line above each."""
    text = (files(__package__ or "") / "sql" / f"{name}.sql").read_text("utf-8")
    parts = [part.split("\n", 1) for part in text.split("-- name: ")[1:]]
    return {title.strip(): body.strip().rstrip(";") for title, body in parts}
