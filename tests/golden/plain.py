"""Values as JSON has them, with every field, so that what two releases read can be compared."""

import msgspec


def plain(value: object) -> object:
    """Return a value as JSON has it: records with all fields, those with defaults too, and bytes as hex digits."""
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        known = {name: plain(item) for name, item in fields.items() if item is not msgspec.UNSET}
        return {"type": type(value).__name__} | known
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def disagreements(found: object, kept: object, where: str = "") -> list[str]:
    """Return where a value differs from one that is kept. It may have fields that were not known then."""
    if isinstance(found, dict) and isinstance(kept, dict):
        return [
            line
            for name, item in kept.items()
            for line in disagreements(found.get(name), item, f"{where}.{name}".strip("."))
        ]
    if isinstance(found, list) and isinstance(kept, list) and len(found) == len(kept):
        pairs = enumerate(zip(found, kept, strict=True))
        return [line for number, (one, other) in pairs for line in disagreements(one, other, f"{where}[{number}]")]
    return [] if found == kept else [f"{where} is {found!r}, and was {kept!r}"]
