"""What the database cannot keep is refused as what it is: a value at fault, and no outage."""

import pytest
from msgspec.structs import replace

from windlass._model.filter import Filter
from windlass._model.state import State
from windlass._model.task import Error
from windlass._model.verdict import Bury
from windlass._stores.postgres import PostgresStore
from windlass.errors import InvalidPayload
from windlass.testing.conformance.steps import a_task, enqueue_and_claim, settlement, state_of, worker_on


@pytest.mark.parametrize("message", ["a NUL: \0", "a lone surrogate: \ud800"])
async def test_a_settlement_that_cannot_be_written_is_not_tried_for_ever(
    store: PostgresStore, message: str
) -> None:
    """The worker buries what it is told that the value is at fault for; an outage it would sit out."""
    held = await enqueue_and_claim(store, await worker_on(store))

    with pytest.raises(InvalidPayload, match="cannot store a value"):
        await store.settle([settlement(held, Bury(error=Error(type="E", message=message)))])

    assert await state_of(store, held.task.id) is State.RUNNING


@pytest.mark.parametrize("wrong", [{"priority": 2**40}, {"type": "nul\0"}, {"tenant": "\ud800"}])
@pytest.mark.parametrize("number", [1, 3, 1000])
async def test_a_task_that_cannot_be_written_is_refused_whole(
    store: PostgresStore, wrong: dict[str, object], number: int
) -> None:
    batch = [a_task() for _ in range(number - 1)]

    with pytest.raises(InvalidPayload, match="cannot store a value"):
        await store.enqueue([*batch, replace(a_task(), **wrong)])

    (count,) = await store.count(Filter(), [])
    assert count.number == 0
