"""The statements, one a file, read once. The same values run on our connections and on the caller's own.

They name the schema windlass; for a store in another one the name is put in its place. `{task}`, `{history}`
and `{leased}` stand for the columns that rows.py reads, in its order.
"""

import re
from functools import cache
from importlib.resources import files

from . import columns

DEFAULT_SCHEMA = "windlass"

_SCHEMA = re.compile(r"\bwindlass\.(?=[a-z])")


@cache
def statement(name: str, schema: str) -> str:
    """The text of sql/<name>.sql, its header left out."""
    text = (files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    sql = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip()
    sql = sql.replace("{leased}", columns.LEASED).replace("{task}", columns.TASK)
    return within(sql.replace("{history}", columns.HISTORY), schema)


def within(sql: str, schema: str) -> str:
    """A statement that names the schema windlass, for this schema."""
    return sql if schema == DEFAULT_SCHEMA else _SCHEMA.sub(f"{schema}.", sql)
