"""History: parts are merged once, rolled up and removed in time, on every store."""

from datetime import datetime, timedelta

from ...._keeper.history import HistoryChore
from ...._model.record import HistoryBucket, HistorySeries
from ...._observe.history_reader import HistoryReader
from ...._policy.history.buckets import HOUR, TEN_SECONDS, bucket_name, part_name, start_of
from ..steps import StoreTest


def a_part(start: datetime, part_id: str = "p", completed: int = 1, type_name: str = "ünï") -> HistoryBucket:
    """Return what one process counted of the ten seconds that start then."""
    series = HistorySeries(queue="mail", type=type_name, completed=completed, run=(3, completed))
    return HistoryBucket(name=part_name(TEN_SECONDS.floor(start), part_id), series=(series,))


class TestHistory(StoreTest):
    async def names(self) -> list[str]:
        return [one.name for one in await self.all_records(HistoryBucket)]

    async def test_a_bucket_is_returned_as_it_was_put(self) -> None:
        series = HistorySeries(
            queue="q", type="t", completed=1, retried=2, buried=3, cancelled=4, expired=5,
            wait=(0, 1, 127, 1 << 40), run=(5, 6), depth=7, oldest=8.125,
        )  # fmt: skip
        name = bucket_name(TEN_SECONDS, TEN_SECONDS.floor(self.clock.now()))
        bucket = HistoryBucket(name=name, series=(series,), parts=("a", "b"), measured=True)

        await self.store.put(bucket, None, None)

        assert await self.all_records(HistoryBucket) == (bucket,)

    async def test_parts_are_merged_into_their_bucket_and_removed(self) -> None:
        start = self.clock.now()
        await self.enqueue_one(queue="mail", type="ünï")
        for part_id, completed in (("a", 2), ("b", 3)):
            await self.store.put(a_part(start, part_id, completed))
        self.clock.advance(13)

        again_after = await HistoryChore(self.store).turn()

        (bucket,) = await self.all_records(HistoryBucket)
        assert again_after == 10
        assert bucket.name == bucket_name(TEN_SECONDS, start)
        assert (sorted(bucket.parts), bucket.measured) == (["a", "b"], True)
        assert bucket.series == (
            HistorySeries(queue="mail", type="ünï", completed=5, run=(3, 5), depth=1, oldest=13.0),
        )

    async def test_a_part_of_a_bucket_that_is_not_over_is_left(self) -> None:
        part = a_part(self.clock.now())
        await self.store.put(part)
        self.clock.advance(12)

        await HistoryChore(self.store).turn()

        assert part.name in await self.names()

    async def test_history_is_rolled_up_read_and_removed(self) -> None:
        chore, start = HistoryChore(self.store), self.clock.now()
        for ten_seconds in range(12):
            await self.store.put(a_part(start + ten_seconds * TEN_SECONDS.length))
        self.clock.advance(2 * 60 + 3)
        await chore.turn()
        reader = HistoryReader(self.store)
        self.clock.advance(3)
        fine = await reader.read("2m")
        self.clock.advance(timedelta(hours=1))
        await chore.turn()
        self.clock.advance(3)
        minutes, hours = await reader.read("5h"), await reader.read("2d")

        assert [point.completed for point in fine.points()] == [1] * 12
        assert [one.completed for one in minutes.points(queue="mail") if one.completed] == [6, 6]
        assert (hours.total().completed, hours.total(queue="none").completed) == (12, 0)
        for passed, left in ((1, {"1m", "1h"}), (7, {"1h"}), (91, set())):
            self.clock.advance(timedelta(days=passed))
            await chore.turn()
            of_then = [name for name in await self.names() if (start_of(name) or start) < start + HOUR.length]
            assert {name.partition("/")[0] for name in of_then} == left

    async def test_a_part_that_comes_late_is_in_all_resolutions_once(self) -> None:
        chore, start = HistoryChore(self.store), self.clock.now()
        await self.store.put(a_part(start, "early"))
        self.clock.advance(timedelta(hours=2))
        await chore.turn()

        await self.store.put(a_part(start, "late"))
        await chore.turn()
        await self.store.put(a_part(start, "late"))  # repeated after a lost reply
        await chore.turn()

        self.clock.advance(3)
        found = [await HistoryReader(self.store).read(period) for period in ("3h", "5h", "30d")]
        assert [history.total().completed for history in found] == [2, 2, 2]
        assert not [name for name in await self.names() if name.startswith("part")]
