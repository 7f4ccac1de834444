"""The text of the store's statements: sql/<name>.sql for a schema, with a task's columns put in.

The columns of a task are listed here once; the files take them from slots such as `/* :task_columns */`. So a
new field of a task is added here, to the row functions in rows.py and by a migration. The files name the
schema windlass; for a store in another schema its name is put in.
"""

import re
from collections.abc import Iterable
from functools import cache

from ..statements import fill, load, slots_of

DEFAULT_SCHEMA = "windlass"

_SCHEMA = re.compile(r"\bwindlass\.(?=[a-z])")

# -- columns -----------------------------------------------------------------------------------------

# Given when a task is enqueued, with their SQL types; in the order of rows.plain_row, then of rows.new_row.
_PLAIN = {
    "id": "uuid",
    "type": "text",
    "payload": "bytea",
    "root": "uuid",
    "queue": "text",
    "tenant": "text",
    "priority": "integer",
    "boost": "bigint",
    "max_attempts": "integer",
    "timeout": "interval",
    "next": "bytea",
    "result_into": "text",
    "secret": "text",
    "trace": "text",
    "enqueued_by": "text",
}
_PLACED = {"stripe": "smallint", "lane": "text", "key": "text"}
_CHECKED = {"idempotency_key": "text", "fingerprint": "text", "after": "text"}
_NEW = _PLAIN | _PLACED | _CHECKED | {"awaited": "boolean"}
_BEFORE_NEW = 4
"""Parameters of enqueue.sql and enqueue_one.sql before the new columns: clock, run_at, delay, waiting."""

PLAIN_COLUMNS = (*_PLAIN, *_PLACED)
"""The columns of rows.plain_row."""

NEW_COLUMNS = _BEFORE_NEW - 1 + len(_NEW)
"""How many columns rows.new_row has."""

# What an end does not change.
_FIXED = (*_PLAIN, *_CHECKED, "created_at", "claimed_at")
_LEASED = (
    *_FIXED, "attempt", "fence", "run_at", "session", "worker", "cancel_requested", "error_type",
    "error_message", "error_traceback", "duration", "unhandled_since",
)  # fmt: skip
_TASK = (*_LEASED, "state", "finished_at", "progress_fraction", "progress_message", "result")
_NOT_IN_HISTORY = {"session": "NULL::text", "unhandled_since": "NULL::timestamptz"}


def _of(alias: str, names: Iterable[str]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)


def _read(alias: str, names: Iterable[str]) -> str:
    return _of(alias, [f"{name}::text" if _NEW.get(name) == "uuid" else name for name in names])


_COLUMNS = {
    "leased_columns": _read("t", _LEASED),  # read by rows.read_leased
    "task_columns": _read("t", _TASK),  # read by rows.read_task, as are the history's
    "history_columns": ", ".join(_NOT_IN_HISTORY.get(name) or _read("h", [name]) for name in _TASK),
    "new_columns": ", ".join(_NEW),
    "new_columns_of_g": _of("g", _NEW),
    "new_arrays": ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_NEW.values(), _BEFORE_NEW + 1)),
    "new_values": ", ".join(
        f"${n}::{kind} AS {name}" for n, (name, kind) in enumerate(_NEW.items(), _BEFORE_NEW + 1)
    ),
    "fixed_columns": ", ".join((*_FIXED, "once")),
    "fixed_columns_of_t": _of("t", (*_FIXED, "once")),
    "fixed_columns_of_done": _of("done", (*_FIXED, "once")),
    "fixed_columns_of_r": _of("r", (*_FIXED, "once")),
}

# -- statements --------------------------------------------------------------------------------------


@cache
def statement(name: str, schema: str, **slots: str) -> str:
    """Return the text of sql/<name>.sql for a schema, and keep it for the next call."""
    return compose(name, schema, **slots)


def compose(name: str, schema: str, **slots: str) -> str:
    """Return the text of sql/<name>.sql for a schema; ValueError unless the slots are those of the file."""
    assert __package__
    text = load(__package__, name)
    columns = {slot: _COLUMNS[slot] for slot in slots_of(text) & _COLUMNS.keys()}
    return in_schema(fill(text, columns | slots), schema)


def in_schema(sql: str, schema: str) -> str:
    """Return a text that names the schema windlass for another schema."""
    return sql if schema == DEFAULT_SCHEMA else _SCHEMA.sub(f"{schema}.", sql)


@cache
def settle_statement(stripes: int, schema: str) -> str:
    """Return settle.sql claiming from this many stripes of queues; with none it only settles."""
    if stripes == 0:
        return statement("settle", schema, shares="", candidates=statement("no_candidates", schema))
    if stripes == 1:
        return statement("settle", schema, shares="", candidates=_candidates(1, "$10", schema))
    numbers = range(1, stripes + 1)
    heads = [statement("stripe_head", schema, number=str(number)) for number in numbers]
    share = "coalesce((SELECT shares.number FROM shares WHERE shares.stripe = {}), 0)"
    candidates = [_candidates(number, share.format(number), schema) for number in numbers]
    return statement(
        "settle",
        schema,
        shares=statement("shares", schema, heads=_union(heads)),
        candidates=_union(candidates),
    )


@cache
def settle_from_lanes_statement(schema: str) -> str:
    """Return settle.sql claiming from lanes."""
    return statement("settle", schema, shares="", candidates=statement("lane_candidates", schema))


def _candidates(number: int, limit: str, schema: str) -> str:
    return statement("stripe_candidates", schema, number=str(number), limit=limit)


def _union(parts: Iterable[str]) -> str:
    return "\nUNION ALL\n".join(parts)
