"""The statement of the hot path for so many queues: an arm reaches into each."""

from functools import cache

from msgspec import Struct

from ...._model.task import TaskId
from ..statements import statement

FLOOR: tuple[int, TaskId] = (-(2**63), "00000000-0000-0000-0000-000000000000")
"""Lower than any rank and id: look from the very beginning."""


class Arm(Struct, frozen=True):
    """Where a claim reaches: a queue, one stripe of it, and the rank and id before which it does not look."""

    queue: str
    stripe: int = 0
    floor: tuple[int, TaskId] = FLOOR


_NONE = """
SELECT NULL::bigint AS rank, NULL::uuid AS id, NULL::tid AS ctid
WHERE false AND cardinality($8::text[]) = cardinality($9::smallint[]) + cardinality($12::bigint[])
    + cardinality($13::uuid[])
"""


@cache
def settle_with(arms: int, schema: str) -> str:
    """settle.sql, claiming from so many queues or stripes; with none it only settles."""
    sql = statement("settle", schema)
    if arms == 1:
        return _with(sql, "", _arm(1, "$10", schema))
    if arms == 0:
        return _with(sql, "", _NONE)
    heads = "\nUNION ALL\n".join(_numbered(statement("head", schema), n) for n in range(1, arms + 1))
    shares = statement("shares", schema).replace("/* heads */", heads)
    room = "coalesce((SELECT shares.number FROM shares WHERE shares.arm = {}), 0)"
    every = "\nUNION ALL\n".join(_arm(n, room.format(n), schema) for n in range(1, arms + 1))
    return _with(sql, shares, every)


@cache
def settle_from_lanes(schema: str) -> str:
    """settle.sql, claiming from lanes."""
    return _with(statement("settle", schema), "", statement("lane_arm", schema))


def _with(sql: str, shares: str, arms: str) -> str:
    return sql.replace("/* shares */", shares).replace("/* arms */", arms)


def _arm(number: int, room: str, schema: str) -> str:
    return _numbered(statement("arm", schema), number).replace("/* room */", room)


def _numbered(sql: str, number: int) -> str:
    return sql.replace("[0]", f"[{number}]").replace("SELECT 0 AS arm", f"SELECT {number} AS arm")
