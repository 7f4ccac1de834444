"""Answers the claim planner's questions. They are advice: the script that leases checks them again."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...._model.queue import Level, level_of
from ...._model.state import State
from ...._model.task import Task, TaskId
from ...._policy.order.limits import Permit, PermitUsage, Subject
from ...rules import claim_planner
from ...rules.claim_planner import KEYS_AT_ONCE, LANES_AT_ONCE, MAX_SIZE, Head
from ..connection.client import Client
from ..keys import NO_PLACE, Keys, lane_and_key, packed, place_of, unpacked
from ..rows import Stored, moment, read_task

EXAMINED = 2_000
"""Ready tasks of a place that are looked at for those of a level, or behind expired ones."""

_WINDOW = 200


class Answers:
    """The answers within one claim. A task that was offered once is not offered again."""

    def __init__(self, client: Client, keys: Keys, now: datetime) -> None:
        self._client = client
        self._keys = keys
        self._now = now
        self._offered: set[TaskId] = set()
        self.buckets: dict[str, bytes] = {}  # permit's key -> the bucket as it was read, b"" if there is none

    async def answer(self, question: claim_planner.Question) -> Any:
        """Answer a question of the planner."""
        match question:
            case claim_planner.Lanes(queue, first, below, limit):
                return await self._lanes(queue, first, below, limit)
            case claim_planner.Sizes(queue, first, below):
                return await self._sizes(queue, await self._lanes(queue, first, below, LANES_AT_ONCE))
            case claim_planner.Keys(queue, after):
                return await self._first_of_keys(queue, after)
            case claim_planner.Counts(permits):
                return await self._uses(permits)
            case claim_planner.Heads(queue, numbers):
                wanted = {place_of(*where): number for where, number in numbers.items()}
                heads = await self._heads(queue, wanted)
                self._offered.update(head.id for head in heads)
                return heads
            case claim_planner.LevelHeads(queue, level, number):
                return await self._of_level(queue, level, number)

    # -- lanes ---------------------------------------------------------------------------------------

    async def _lanes(self, queue: str, first: str, below: str, limit: int) -> list[str]:
        """Return the first lanes from one name to below another that have ready tasks."""
        found: list[str] = []
        if first == "" and await self._client.call("EXISTS", self._keys.ready(queue)):
            found.append("")
        start = f"[{first}"
        while len(found) < limit:
            places = await self._places(queue, start, f"({below}", limit + 1)
            for place in places:
                lane, _ = lane_and_key(place)
                if lane not in found[-1:]:
                    found.append(lane)
            if len(places) <= limit:
                break
            start = f"[{lane_and_key(places[-1])[0]}\x01"  # Behind all keys of the last lane.
        return found[:limit]

    async def _places(self, queue: str, start: str, end: str, limit: int) -> list[str]:
        command = ("ZRANGEBYLEX", self._keys.places(queue), start, end, "LIMIT", 0, limit)
        return [one.decode() for one in await self._client.call(*command)]

    async def _sizes(self, queue: str, lanes: Sequence[str]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for lane in lanes:
            places = await self._places(queue, f"[{lane}\x00", f"({lane}\x01", KEYS_AT_ONCE)
            if lane == "":
                places.append(NO_PLACE)
            cards = await self._client.call_all([("ZCARD", self._keys.ready(queue, one)) for one in places])
            if number := min(sum(cards), MAX_SIZE):
                sizes[lane] = number
        return sizes

    # -- keys ----------------------------------------------------------------------------------------

    async def _first_of_keys(self, queue: str, after: Mapping[str, str]) -> list[Head]:
        """Return, for each lane, the head without a key, then those of the keys after one, then up to it."""
        wanted: dict[str, int] = {}
        for lane, key in after.items():
            named = await self._places(queue, f"({lane}\x00{key}", f"({lane}\x01", KEYS_AT_ONCE)
            if key:
                named += await self._places(queue, f"({lane}\x00", f"[{lane}\x00{key}", KEYS_AT_ONCE)
            for place in [place_of(lane, ""), *dict.fromkeys(named)][:KEYS_AT_ONCE]:
                wanted[place] = 1
        return await self._heads(queue, wanted)

    # -- tasks ---------------------------------------------------------------------------------------

    async def _heads(self, queue: str, numbers: Mapping[str, int]) -> list[Head]:
        """Return the first tasks of places that were not offered and have not expired."""
        found: dict[str, list[Head]] = {place: [] for place in numbers}
        start = {place: 0 for place, number in numbers.items() if number > 0}
        while start:
            spare = len(self._offered)
            ranges = [
                ("ZRANGE", self._keys.ready(queue, place), at, at + numbers[place] - 1 + min(spare, _WINDOW))
                for place, at in start.items()
            ]
            rows = [[unpacked(one) for one in ids] for ids in await self._client.call_all(ranges)]
            fresh = {one for ids in rows for one in ids if one not in self._offered}
            tasks = await self._load(sorted(fresh))
            unfinished: dict[str, int] = {}
            for (place, at), ids in zip(start.items(), rows, strict=True):
                found[place] += [
                    _head(place, tasks[one].task)
                    for one in ids
                    if one in tasks and self._may_start(tasks[one].task)
                ]
                window = numbers[place] + min(spare, _WINDOW)
                if len(found[place]) < numbers[place] and len(ids) == window and at < EXAMINED:
                    unfinished[place] = at + window
            start = unfinished
        return [head for place, heads in found.items() for head in heads[: numbers[place]]]

    def _may_start(self, task: Task) -> bool:
        return task.state is State.READY and not task.is_expired(self._now)

    async def _of_level(self, queue: str, level: Level, number: int) -> list[Head]:
        """Return the first tasks of a level in any place, of those that are looked at."""
        places = [NO_PLACE, *await self._places(queue, "-", "+", LANES_AT_ONCE)]
        rows = await self._client.call_all(
            [("ZRANGE", self._keys.ready(queue, place), 0, EXAMINED - 1) for place in places]
        )
        where = {unpacked(one): place for place, ids in zip(places, rows, strict=True) for one in ids}
        heads = [
            _head(where[task_id], stored.task)
            for task_id, stored in (await self._load(list(where))).items()
            if self._may_start(stored.task) and level_of(stored.task.priority) is level
        ]
        return sorted(heads, key=lambda head: (head.rank, head.id))[:number]

    async def _load(self, ids: Sequence[TaskId]) -> dict[TaskId, Stored]:
        found: dict[TaskId, Stored] = {}
        for at in range(0, len(ids), _WINDOW):
            some = ids[at : at + _WINDOW]
            rows = await self._client.run("load", [self._keys.meta], [self._keys.prefix, *map(packed, some)])
            for task_id, (row, *document) in zip(some, rows, strict=True):
                if row is not None:
                    found[task_id] = read_task(task_id, row, *document)
        return found

    # -- limits --------------------------------------------------------------------------------------

    async def _uses(self, permits: Iterable[Permit]) -> dict[str, PermitUsage]:
        wanted = [permit.key for permit in permits]
        *running, left = await self._client.call_all(
            [
                *(("SCARD", self._keys.permit(key)) for key in wanted),
                ("HMGET", self._keys.buckets, *wanted),
            ]
        )
        uses: dict[str, PermitUsage] = {}
        for key, number, bucket in zip(wanted, running, left, strict=True):
            self.buckets[key] = bucket or b""
            uses[key] = PermitUsage(number, *read_bucket(bucket))
        return uses


def read_bucket(bucket: bytes | None) -> tuple[float | None, datetime | None]:
    """Return the tokens of a bucket, and when it had them."""
    if not bucket:
        return None, None
    tokens, at = bucket.split()
    return float(tokens), moment(at)


def _head(place: str, task: Task) -> Head:
    lane, key = lane_and_key(place)
    subject = Subject(task.queue, task.type, task.tenant, task.payload)
    return Head(lane, key, task.rank, task.id, subject, place)
