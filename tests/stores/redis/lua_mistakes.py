"""Mistakes to put into the scripts, one at a time, so that tests can show that they would be noticed.

As a plugin of pytest it makes the mistake that WINDLASS_LUA_MISTAKE names.
"""

import os

from msgspec import Struct

from windlass._stores.redis.connection import client as scripts


class LuaMistake(Struct, frozen=True):
    """A file of lua/, a piece of it, and what stands there instead."""

    file: str
    right: str
    wrong: str = ""


_SAME_RULES = "if redis.call('HGET', KEYS[1], 'rules') ~= ARGV[3] then"
_KEEPS_PLACE = "if run.place ~= '' and redis.call('EXISTS', run.ready) == 0 then"
_RANGE_OF_ROOM = "room = math.min(room, tonumber(most) - running[key])"
_EXPIRED = "if attempt == 0 and struct.unpack('>d', name) <= now then"
_REPORTED = "if state == RUNNING and fence == tonumber(ARGV[at + 3 * report - 1]) then"

LUA_MISTAKES = {
    # -- enqueue
    "enqueue by outdated rules": LuaMistake("enqueue", _SAME_RULES, "if false then"),
    "enqueue a known id again": LuaMistake("enqueue", "#KEYS))) > 0 then", "#KEYS))) > 1e9 then"),
    "enqueue without the index of ids": LuaMistake("enqueue", "in_parts('ZADD', prefix .. 'ids', members)"),
    "enqueue without the name of the group": LuaMistake(
        "enqueue", "named[#named + 1] = 'ready\\31' .. group"
    ),
    "enqueue without the group": LuaMistake("enqueue", "add(prefix .. 'g:ready\\31' .. group, due, members)"),
    "enqueue without the place": LuaMistake("enqueue", "if place ~= '' then", "if false then"),
    "enqueue without a wake": LuaMistake(
        "enqueue", "redis.call('PUBLISH', prefix .. 'wakes', 'r' .. queue)", "true"
    ),
    "enqueue by another rank": LuaMistake(
        "enqueue", "'\\31' .. place, rank, members)", "'\\31' .. place, '0', members)"
    ),
    # -- commit
    "commit over a task that has changed": LuaMistake(
        "parts/commit",
        "if (row and string.sub(row, 1, @version) or '') ~= ARGV[version] then",
        "if false then",
    ),
    "commit over a field that has changed": LuaMistake(
        "parts/commit", "if (found or '') ~= ARGV[guard + 2] then", "if false then"
    ),
    # -- complete
    "complete a task that has changed": LuaMistake(
        "complete", "or string.sub(row, 1, @version) ~= ARGV[4 + 3 * task]"
    ),
    "complete without leaving the group": LuaMistake("complete", "leaving.flush()"),
    "complete without the index for retention": LuaMistake(
        "complete", "    ended[#ended + 1] = ended_at\n    ended[#ended + 1] = id\n"
    ),
    "complete and keep the permits": LuaMistake("complete", "given_back.flush()"),
    "complete and keep the lease": LuaMistake("complete", "freed.flush()"),
    # -- claim
    "claim for a session that has expired": LuaMistake(
        "parts/lease", "if not expires or tonumber(expires) <= now then", "if not expires then"
    ),
    "claim with the old fence": LuaMistake("parts/lease", "fence + 1, attempt + 1", "fence, attempt + 1"),
    "claim without counting the attempt": LuaMistake(
        "parts/lease", "fence + 1, attempt + 1", "fence + 1, attempt"
    ),
    "claim what has expired": LuaMistake("parts/lease", _EXPIRED, "if false then"),
    "claim without holding": LuaMistake("parts/lease", "in_parts('HSET', prefix .. 'h:' .. session, held)"),
    "claim without taking": LuaMistake("parts/claim", "in_parts('ZREM', key, ids)\n"),
    "claim the last of several queues": LuaMistake(
        "parts/claim", "one.rank < other.rank", "one.rank > other.rank"
    ),
    # -- grant
    "grant above a cap": LuaMistake("grant", _RANGE_OF_ROOM),
    "grant what others have taken": LuaMistake(
        "grant", "if rank and #here < room then", "if #here < room then"
    ),
    "grant a part for all tokens": LuaMistake("grant", "elseif all then", "elseif false then"),
    "grant without permits": LuaMistake("grant", "holding.flush()"),
    "grant and keep an empty place": LuaMistake("grant", _KEEPS_PLACE, "if false then"),
    "find no lane without a name": LuaMistake(
        "lanes", "if first == '' and redis.call('EXISTS', ready) == 1 then", "if false then"
    ),
    # -- heartbeat
    "renew a session that is gone": LuaMistake(
        "heartbeat", "if not known and ARGV[4] ~= '1' then", "if false then"
    ),
    "renew a lease with another fence": LuaMistake("heartbeat", "or fence ~= tonumber(ARGV[9 + 2 * lease])"),
    "renew without a request to stop": LuaMistake("heartbeat", "has(flags, CANCEL) and row or 1", "1"),
    "renew and forget a lost claim": LuaMistake(
        "heartbeat", "if tonumber(number) <= through then", "if false then"
    ),
    "report progress with another fence": LuaMistake("heartbeat", _REPORTED, "if state == RUNNING then"),
    # -- rescue
    "rescue from the living": LuaMistake("rescue", "'-inf', whole(now), 'LIMIT'", "'-inf', '+inf', 'LIMIT'"),
    "rescue with the old fence": LuaMistake(
        "parts/row",
        "with_lease(row, new, version + 1, fence + 1, attempt",
        "with_lease(row, new, version + 1, fence, attempt",
    ),
    "rescue and forget the rest": LuaMistake(
        "rescue", "if redis.call('EXISTS', held) == 0 then", "if true then"
    ),
}


def pytest_configure() -> None:
    """Make the mistake, in every process of the tests."""
    mistake = LUA_MISTAKES[os.environ["WINDLASS_LUA_MISTAKE"]]
    read = scripts._read

    def mistaken(name: str) -> str:
        text = read(name)
        return text.replace(mistake.right, mistake.wrong) if name == mistake.file else text

    scripts._read = mistaken
