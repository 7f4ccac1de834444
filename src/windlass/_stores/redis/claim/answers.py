"""Answers the claim planner's questions. They are advice: the script that leases checks them again."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from ...._model.lease import Claim
from ...._model.queue import Level, level_of
from ...._model.state import State
from ...._model.task import Task, TaskId
from ...._policy.order.limits import Permit, PermitUsage, Subject
from ...rules import claim_planner
from ...rules.claim_planner import KEYS_AT_ONCE, LANES_AT_ONCE, MAX_SIZE, Head
from ...rules.queue_rules import QueueRules
from ..connection.link import Command
from ..database import Database
from ..keys import NO_PLACE, lane_and_key, packed, place_of, unpacked
from ..rows import Stored, moment, read_task

EXAMINED = 2_000
"""Ready tasks that are looked at: of a queue for those of a level, of a place behind expired ones."""

_OF_TYPES = 20_000
"""Ready tasks of a place that are looked at for tasks of some types."""

_WINDOW = 200
_WINDOW_OF_TYPES = 500  # of all places together
_KEYS_OF_TYPES = 10_000  # keys of a lane that are looked at for tasks of some types
_MAX_SUBJECTS = 10_000
_Ranked: TypeAlias = tuple[bytes, TaskId, int]  # id as it is stored, id, rank


class Offers:
    """Tasks that claims under way have been offered, by their places: others are offered other tasks."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, str], set[TaskId]] = {}

    def of(self, queue: str, place: str) -> Collection[TaskId]:
        """Return those of a place."""
        return self._by_place.get((queue, place), ())

    def add(self, heads: Iterable[Head]) -> None:
        for head in heads:
            self._by_place.setdefault((head.subject.queue, head.row[0]), set()).add(head.id)

    def remove(self, heads: Iterable[Head]) -> None:
        for head in heads:
            where = head.subject.queue, head.row[0]
            offered = self._by_place.get(where, set())
            offered.discard(head.id)
            if not offered:
                self._by_place.pop(where, None)


class Answers:
    """The answers within one claim. A task is not offered twice, nor to two claims of a handle at once."""

    def __init__(
        self,
        database: Database,
        rules: QueueRules,
        subjects: dict[tuple[str, str], Subject],
        now: datetime,
        offers: Offers,
        claim: Claim,
    ) -> None:
        """`subjects`: what is known, as of these rules, of the tasks of places: queue and place.

        `offers`: of all claims of this handle under way; those in `offered` must be removed in the end.
        """
        self._client = database.client
        self._keys = database.keys
        self._claim = claim
        self._rules = rules
        self._subjects = subjects
        self._now = now
        self._offers = offers
        self._least, self._most = (0, EXAMINED) if claim.types is None else (_WINDOW_OF_TYPES, _OF_TYPES)
        self.offered: list[Head] = []
        self._with_lanes: dict[tuple[str, str], list[Head]] = {}  # first tasks, by queue and lane
        self.buckets: dict[str, bytes] = {}  # permit's key -> the bucket as it was read, b"" if there is none

    async def answer(self, question: claim_planner.Question) -> Any:
        """Answer a question of the planner."""
        match question:
            case claim_planner.Lanes(queue, first, below, limit):
                is_plain = self._rules.is_settled(queue) and self._rules.is_unlimited(queue)
                if is_plain and self._claim.types is None:
                    return await self._lanes_and_heads(queue, first, below, limit)
                return await self._lanes(queue, first, below, limit)
            case claim_planner.Sizes(queue, first, below):
                return await self._sizes(queue, await self._lanes(queue, first, below, LANES_AT_ONCE))
            case claim_planner.Keys(queue, after):
                return await self._first_of_keys(queue, after)
            case claim_planner.Counts(permits):
                return await self._uses(permits)
            case claim_planner.Heads(queue, numbers):
                heads = self._known_heads(queue, numbers)
                if heads is None:
                    wanted = {place_of(*where): number for where, number in numbers.items()}
                    heads = await self._heads(queue, wanted)
                self._offers.add(heads)
                self.offered += heads
                return heads
            case claim_planner.LevelHeads(queue, level, number):
                return await self._of_level(queue, level, number)

    # -- lanes ---------------------------------------------------------------------------------------

    async def _lanes(self, queue: str, first: str, below: str, limit: int) -> list[str]:
        """Return the first lanes from one name to below another that have ready tasks."""
        settings = self._rules.settings.get(queue)
        if self._rules.is_settled(queue) and (settings is None or not settings.is_laned):
            return [""] if first == "" else []
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

    async def _lanes_and_heads(self, queue: str, first: str, below: str, limit: int) -> list[str]:
        """Return lanes of a queue without limits; note the first tasks of each, which are asked for next."""
        arguments = (self._keys.prefix, queue, first, below, limit)
        is_expiring, *found = await self._client.run("lanes", [self._keys.meta], arguments)
        lanes: list[str] = []
        subject = _any_subject(queue)
        for place, ranked in zip(map(bytes.decode, found[::2]), found[1::2], strict=True):
            lane, key = lane_and_key(place)
            lanes.append(lane)
            if not is_expiring:
                self._with_lanes[queue, lane] = [
                    Head(lane, key, int(rank), unpacked(member), subject, (place, member))
                    for member, rank in zip(ranked[::2], ranked[1::2], strict=True)
                ]
        return lanes

    def _known_heads(self, queue: str, numbers: Mapping[tuple[str, str], int]) -> list[Head] | None:
        """Return first tasks of lanes that came with the lanes; None if more are needed."""
        heads: list[Head] = []
        for (lane, _), number in numbers.items():
            offered = self._offers.of(queue, place_of(lane, ""))
            known = [head for head in self._with_lanes.pop((queue, lane), ()) if head.id not in offered]
            if len(known) < number:
                return None
            heads += known[:number]
        return heads

    async def _places(self, queue: str, start: str, end: str, limit: int) -> list[str]:
        return [one.decode() for one in await self._client.call(*self._range(queue, start, end, limit))]

    def _range(self, queue: str, start: str, end: str, limit: int) -> Command:
        return ("ZRANGEBYLEX", self._keys.places(queue), start, end, "LIMIT", 0, limit)

    async def _sizes(self, queue: str, lanes: Sequence[str]) -> dict[str, int]:
        found = await self._client.call_all(
            [self._range(queue, f"[{lane}\x00", f"({lane}\x01", KEYS_AT_ONCE) for lane in lanes]
        )
        places = [(lane, one.decode()) for lane, some in zip(lanes, found, strict=True) for one in some]
        places += [("", NO_PLACE)] if "" in lanes else []
        cards = await self._client.call_all([("ZCARD", self._keys.ready(queue, one)) for _, one in places])
        sizes: Counter[str] = Counter()
        for (lane, _), number in zip(places, cards, strict=True):
            sizes[lane] += number
        return {lane: min(number, MAX_SIZE) for lane, number in sizes.items() if number}

    # -- keys ----------------------------------------------------------------------------------------

    async def _first_of_keys(self, queue: str, after: Mapping[str, str]) -> list[Head]:
        """Return, for each lane, the head without a key, then those of the keys after one, then up to it."""
        # Keys may have no tasks of the types that are claimed: then others must be looked at.
        most = KEYS_AT_ONCE if self._claim.types is None else _KEYS_OF_TYPES
        ranges: list[Command] = []
        for lane, key in after.items():
            ranges.append(self._range(queue, f"({lane}\x00{key}", f"({lane}\x01", most))
            ranges.append(self._range(queue, f"({lane}\x00", f"[{lane}\x00{key}", most if key else 0))
        found = await self._client.call_all(ranges)
        wanted: dict[str, int] = {}
        for lane, behind, before in zip(after, found[::2], found[1::2], strict=True):
            named = dict.fromkeys(one.decode() for one in (*behind, *before))
            wanted |= dict.fromkeys([place_of(lane, ""), *named][:most], 1)
        heads = await self._heads(queue, wanted)
        return heads if most == KEYS_AT_ONCE else _first_of_lanes(heads, KEYS_AT_ONCE)

    # -- tasks ---------------------------------------------------------------------------------------

    async def _heads(self, queue: str, numbers: Mapping[str, int]) -> list[Head]:
        """Return the first tasks of places that were not offered and have not expired."""
        found: dict[str, list[Head]] = {place: [] for place in numbers}
        start = {place: 0 for place, number in numbers.items() if number > 0}
        while start:
            least = self._least // len(start)
            windows = {
                place: range(at, at + max(numbers[place] + len(self._offers.of(queue, place)), least))
                for place, at in start.items()
            }
            is_expiring, seen, tasks = await self._look(queue, windows)
            heads = await self._fresh_heads(queue, tasks, is_expiring=is_expiring)
            start = {}
            for place, window in windows.items():
                found[place] += heads[place]
                was_full = seen[place] == len(window)
                if len(found[place]) < numbers[place] and was_full and window.start < self._most:
                    start[place] = window.stop
        return [head for place, heads in found.items() for head in heads[: numbers[place]]]

    async def _look(
        self, queue: str, windows: Mapping[str, range]
    ) -> tuple[bool, dict[str, int], dict[str, list[_Ranked]]]:
        """Look at some ready tasks of places, and return those of the types that are claimed.

        Also return whether some tasks expire, and how many tasks of each place were looked at.
        """
        types = self._claim.types
        is_expiring: Command = ("EXISTS", self._keys.expiring)
        if types is None:
            ranges: list[Command] = [
                ("ZRANGE", self._keys.ready(queue, place), window.start, window.stop - 1, "WITHSCORES")
                for place, window in windows.items()
            ]
            expiring, *rows = await self._client.call_all([is_expiring, *ranges])
            numbers = [len(ranked) // 2 for ranked in rows]
        else:
            expiring = await self._client.call(*is_expiring)
            asked = [part for place, window in windows.items() for part in (place, window.start, len(window))]
            arguments = [self._keys.prefix, queue, len(types), *types, *asked]
            found = await self._client.run("of_types", [self._keys.meta], arguments)
            numbers, rows = found[::2], found[1::2]
        tasks = {
            place: [
                (member, unpacked(member), int(rank))
                for member, rank in zip(ranked[::2], ranked[1::2], strict=True)
            ]
            for place, ranked in zip(windows, rows, strict=True)
        }
        return bool(expiring), dict(zip(windows, numbers, strict=True)), tasks

    async def _fresh_heads(
        self, queue: str, tasks: Mapping[str, Sequence[_Ranked]], *, is_expiring: bool
    ) -> dict[str, list[Head]]:
        """Return those of these tasks, by place, that were not offered and have not expired.

        They are loaded only if that tells more than their places: if some may have expired, or if tasks of a
        place may need different permits. Of a place with limits that is new here, the first task is loaded.
        """
        fresh = {
            place: [ranked for ranked in found if ranked[1] not in self._offers.of(queue, place)]
            for place, found in tasks.items()
        }
        if is_expiring or not self._rules.is_settled(queue):
            loaded = await self._load(sorted({one for found in fresh.values() for _, one, _ in found}))
            return {
                place: [
                    _head(place, loaded[one].task)
                    for _, one, _ in found
                    if one in loaded and self._may_start(loaded[one].task)
                ]
                for place, found in fresh.items()
            }
        subjects = await self._subjects_of(
            queue, {place: found[0][1] for place, found in fresh.items() if found}
        )
        heads: dict[str, list[Head]] = {}
        for place, found in fresh.items():
            subject, (lane, key) = subjects.get(place), lane_and_key(place)
            heads[place] = [
                Head(lane, key, rank, one, subject, (place, member))
                for member, one, rank in found
                if subject is not None
            ]
        return heads

    async def _subjects_of(self, queue: str, firsts: Mapping[str, TaskId]) -> dict[str, Subject]:
        """Return what limits apply to, for each place: of its first task, or as known from an earlier one."""
        if self._rules.is_unlimited(queue):
            return dict.fromkeys(firsts, _any_subject(queue))
        unknown = {place: one for place, one in firsts.items() if (queue, place) not in self._subjects}
        if len(self._subjects) + len(unknown) > _MAX_SUBJECTS:
            self._subjects.clear()
            unknown = dict(firsts)
        loaded = await self._load(sorted(unknown.values()))
        for place, one in unknown.items():
            if one in loaded:
                self._subjects[queue, place] = _subject(loaded[one].task)
        return {place: self._subjects[queue, place] for place in firsts if (queue, place) in self._subjects}

    def _may_start(self, task: Task) -> bool:
        return task.state is State.READY and not task.is_expired(self._now)

    async def _of_level(self, queue: str, level: Level, number: int) -> list[Head]:
        """Return the first tasks of a level in any place, of those that are looked at."""
        places = [NO_PLACE, *await self._places(queue, "-", "+", LANES_AT_ONCE)]
        each = math.ceil(EXAMINED / len(places))
        rows = await self._client.call_all(
            [("ZRANGE", self._keys.ready(queue, place), 0, each - 1) for place in places]
        )
        where = {unpacked(one): place for place, ids in zip(places, rows, strict=True) for one in ids}
        heads = [
            _head(where[task_id], stored.task)
            for task_id, stored in (await self._load(list(where))).items()
            if self._may_start(stored.task)
            and level_of(stored.task.priority) is level
            and self._claim.takes(stored.task.type)
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


def _first_of_lanes(heads: Iterable[Head], most: int) -> list[Head]:
    seen: Counter[str] = Counter()
    found: list[Head] = []
    for head in heads:
        seen[head.lane] += 1
        if seen[head.lane] <= most:
            found.append(head)
    return found


def read_bucket(bucket: bytes | None) -> tuple[float | None, datetime | None]:
    """Return the tokens of a bucket, and when it had them."""
    if not bucket:
        return None, None
    tokens, at = bucket.split()
    return float(tokens), moment(at)


def _head(place: str, task: Task) -> Head:
    return Head(*lane_and_key(place), task.rank, task.id, _subject(task), (place, packed(task.id)))


def _any_subject(queue: str) -> Subject:
    """Return what limits apply to where there are none, so that tasks need not be loaded."""
    return Subject(queue, "", "", b"")


def _subject(task: Task) -> Subject:
    return Subject(task.queue, task.type, task.tenant, task.payload)
