"""Actions on many tasks: in batches of 500, no more than asked for, no faster than allowed."""

from typing import Any

import pytest

from windlass import By, Filter, State
from windlass._client.tasks.batches import apply_in_batches, apply_to
from windlass._model.filter import CancelTasks
from windlass._stores.memory import MemoryStore
from windlass.testing.conformance.steps import some_tasks

CANCEL = CancelTasks(by=By(who="ada"))
READY = Filter(states=(State.READY,))


class Noting(MemoryStore):
    """Notes how many tasks each step may change."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []

    async def apply(self, action: Any, where: Filter, limit: int) -> Any:
        self.limits.append(limit)
        return await super().apply(action, where, limit)


@pytest.fixture
async def store() -> Noting:
    store = Noting()
    await store.enqueue(some_tasks(1_200))
    return store


async def ready(store: MemoryStore) -> int:
    return (await store.count(READY, ()))[0].number


@pytest.mark.parametrize(
    ("limit", "limits"),
    [(None, [500, 500, 500]), (700, [500, 200]), (500, [500]), (0, [])],
)
async def test_all_that_match_or_so_many(store: Noting, limit: int | None, limits: list[int]) -> None:
    done = await apply_in_batches(store, CANCEL, READY, limit)

    assert done == (1_200 if limit is None else limit)
    assert await ready(store) == 1_200 - done
    assert store.limits == limits


async def test_these_tasks_and_no_others(store: Noting) -> None:
    ids = [task.id for task in some_tasks(3)]
    stored = list(store._tables.tasks)[:600]

    assert await apply_to(store, CANCEL, [*stored, *ids]) == 600
    assert store.limits == [500, 103]
    assert await ready(store) == 600
