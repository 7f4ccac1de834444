"""The statements, one a file, read once. The same values run on our connections and on the caller's own."""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files

import msgspec

_encoder = msgspec.json.Encoder()


@cache
def statement(name: str) -> str:
    """The text of sql/<name>.sql, its header left out."""
    text = (files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()


def as_json(value: object) -> str:
    """Encode a value as a JSON parameter."""
    return _encoder.encode(value).decode()


def listed(values: Iterable[object]) -> str:
    """Many values as the one parameter that json_each takes apart."""
    return _encoder.encode(list(values)).decode()
