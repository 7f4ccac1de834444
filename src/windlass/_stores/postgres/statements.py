"""The text of the store's statements: sql/<name>.sql for a schema, with a task's columns put in.

The columns of a task are listed once, in rows.py; the files take them from slots such as
`/* :task_columns */`. So a new field of a task is added there and by a migration. The files name the schema
windlass; for a store in another schema its name is put in.
"""

import re
from collections.abc import Iterable
from functools import cache

from ..statements import fill, load, slots_of
from .rows import BEFORE_NEW, FIXED_COLUMNS, LEASED_COLUMNS, NEW_TYPES, NOT_IN_HISTORY, TASK_COLUMNS

DEFAULT_SCHEMA = "windlass"

_SCHEMA = re.compile(r"\bwindlass\.(?=[a-z])")

# -- columns -----------------------------------------------------------------------------------------


def _of(alias: str, names: Iterable[str]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)


def _read(alias: str, names: Iterable[str]) -> str:
    return _of(alias, [f"{name}::text" if NEW_TYPES.get(name) == "uuid" else name for name in names])


_COLUMNS = {
    "leased_columns": _read("t", LEASED_COLUMNS),  # read by rows.read_leased
    "task_columns": _read("t", TASK_COLUMNS),  # read by rows.read_task, as are the history's
    "history_columns": ", ".join(NOT_IN_HISTORY.get(name) or _read("h", [name]) for name in TASK_COLUMNS),
    "new_columns": ", ".join(NEW_TYPES),
    "new_columns_of_g": _of("g", NEW_TYPES),
    "new_arrays": ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(NEW_TYPES.values(), BEFORE_NEW + 1)),
    "new_values": ", ".join(
        f"${n}::{kind} AS {name}" for n, (name, kind) in enumerate(NEW_TYPES.items(), BEFORE_NEW + 1)
    ),
    "fixed_columns": ", ".join((*FIXED_COLUMNS, "once")),
    "fixed_columns_of_t": _of("t", (*FIXED_COLUMNS, "once")),
    "ended_columns": _of("t", (*FIXED_COLUMNS, "once")).replace("t.fingerprint", "g.fingerprint"),
    "fixed_columns_of_done": _of("done", (*FIXED_COLUMNS, "once")),
    # Its old fingerprint may be taken: update_tasks.sql writes the one that it has now.
    "revived_columns": _of("r", (*FIXED_COLUMNS, "once")).replace("r.fingerprint", "NULL"),
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


MANY_STRIPES = 16
"""Stripes that a claim names in its text. More are rows of its parameters: a plan would take seconds."""


def of_types(parameter: int | None) -> str:
    """Return the condition that a task is of the types that this parameter lists; "" for None: of any."""
    return "" if parameter is None else f"AND t.type = ANY (${parameter}::text[])"


@cache
def settle_statement(stripes: int, schema: str, *, typed: bool = False) -> str:
    """Return settle.sql claiming from up to MANY_STRIPES stripes of queues; with none it only settles.

    `typed`: only tasks of the types that parameter 14 lists.
    """
    if stripes == 0:
        return _settle(schema, candidates=statement("no_candidates", schema))
    types = of_types(14 if typed else None)
    if stripes == 1:
        return _settle(schema, candidates=_candidates(1, "$10", types, schema))
    numbers = range(1, stripes + 1)
    heads = [statement("stripe_head", schema, number=str(number), of_types=types) for number in numbers]
    share = "coalesce((SELECT shares.number FROM shares WHERE shares.stripe = {}), 0)"
    candidates = [_candidates(number, share.format(number), types, schema) for number in numbers]
    return _settle(
        schema,
        shares=statement("shares", schema, heads=_union(heads)),
        candidates=_union(candidates),
        missed="(SELECT sum(shares.number) FROM shares) > (SELECT count(*) FROM picked)",
    )


@cache
def settle_from_many_statement(schema: str, *, typed: bool = False) -> str:
    """Return settle.sql claiming from any number of stripes; `typed`: tasks of the types in parameter 15."""
    return _settle(
        schema,
        is_named="(q.name = '' OR q.name IN (SELECT unnest($8::text[])))",
        shares=statement("many_heads", schema, of_types=of_types(15 if typed else None)),
        candidates=statement("many_candidates", schema),
        missed="(SELECT count(*) FROM candidate) >= $14",
    )


@cache
def settle_from_lanes_statement(schema: str) -> str:
    """Return settle.sql claiming from lanes."""
    return _settle(schema, candidates=statement("lane_candidates", schema))


def _settle(schema: str, **slots: str) -> str:
    """Return settle.sql; `missed` is whether others may have locked tasks that were to be claimed."""
    named = "q.name = ANY ($8::text[] || ''::text)"
    return statement("settle", schema, **{"is_named": named, "shares": "", "missed": "false", **slots})


def _candidates(number: int, limit: str, types: str, schema: str) -> str:
    return statement("stripe_candidates", schema, number=str(number), limit=limit, of_types=types)


def _union(parts: Iterable[str]) -> str:
    return "\nUNION ALL\n".join(parts)
