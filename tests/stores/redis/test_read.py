"""Pages of a store that is larger than a window: by a walk through all tasks, by groups, and by both."""

from functools import partial

import pytest

from tests.examples import FULL
from windlass._model.filter import Filter, Page
from windlass._model.state import State
from windlass._stores.redis import RedisStore, read
from windlass.testing.conformance.steps import a_task, all_pages, all_tasks, complete, settle_now, worker_on

WHERES = {
    "everything": Filter(),
    "the first": Filter(states=(State.COMPLETED,)),
    "the last": Filter(queues=("b",)),
    "some": Filter(tenants=("t1",)),
    "few": Filter(tenants=("t1",), queues=("b",), states=(State.READY,)),
    "none": Filter(types=("unknown",)),
}


@pytest.mark.more
@pytest.mark.parametrize("most", [0, 1000], ids=["walk", "walk, then groups"])
async def test_pages_have_what_matches_whatever_the_way_to_it(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    batch = [a_task(queue="ab"[number // 25], tenant=f"t{number % 3}") for number in range(50)]
    await store.enqueue(batch)
    await settle_now(store, *map(complete, await (await worker_on(store)).claim(12, "a")))
    whole = await all_tasks(store)
    monkeypatch.setattr(read, "WINDOW", 3)
    monkeypatch.setattr(read, "FEW_WINDOWS", 2)
    monkeypatch.setattr(read, "MOST", most)

    for name, where in WHERES.items():
        expected = [task.id for task in whole if read.matches(task, where)]
        for newest_first in (False, True):
            for limit in (1, 4, 60) if FULL else (4, 60):
                pages = await all_pages(partial(store.find, where), limit=limit, newest_first=newest_first)
                found = [task.id for page in pages for task in page]
                assert found == (expected[::-1] if newest_first else expected), (name, limit)


async def test_a_page_of_everything_has_tasks_that_move_while_it_is_read(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As exports and the rotation of keys need it: what moves between two groups is in neither."""
    await store.enqueue([a_task() for _ in range(4)])
    worker = await worker_on(store)
    reading = read.Reader.groups

    async def slow(reader: read.Reader, where: Filter) -> list[read.Group]:
        groups = await reading(reader, where)
        await settle_now(store, *map(complete, await worker.claim(4)))
        return groups

    monkeypatch.setattr(read.Reader, "groups", slow)

    assert len((await store.find(Filter(), Page(limit=10))).items) == 4
