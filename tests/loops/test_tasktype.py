"""Task types: steps, and the errors for wrong ones."""

import re
from typing import Any

import pytest

from windlass import (
    App,
    DuplicateTask,
    InvalidOption,
    chain,
)


@pytest.fixture
def app() -> App:
    return App("memory://")


async def handler(user_id: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("delay", "enqueue()"), ("apply_async", "using(…).enqueue()"), ("send", "enqueue()"), ("s", "step()")],
)
def test_the_methods_of_other_queues_are_named_as_they_are_here(app: App, theirs: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"has no attribute {theirs!r}; here it is {ours}")):
        getattr(app.task(handler), theirs)


def test_other_attributes_are_simply_missing(app: App) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        getattr(app.task(handler), "nothing")  # noqa: B009 - a type checker refuses it
    assert not hasattr(app.task(handler, name="other"), "__wrapped_by__")


async def test_only_steps_are_enqueued(app: App) -> None:
    task_type: Any = app.task(handler)

    with pytest.raises(InvalidOption, match=r"make one with a task type's step\(\)"):
        await app.client.enqueue(task_type)


async def test_a_step_can_be_enqueued_again_and_makes_new_tasks(app: App) -> None:
    last = app.task(handler).step(user_id=1)

    first = await app.client.enqueue(chain(last, last))
    second = await app.client.enqueue(last)
    many = await app.client.enqueue_many([last, last])

    handles = [first, second, *many]
    assert len({handle.id for handle in handles}) == 4
    assert all(handle.created for handle in handles)


async def test_a_declared_uniqueness_holds_for_steps_too(app: App) -> None:
    unique = app.task(unique=True)(handler)
    await app.client.enqueue(unique.step(user_id=1))

    with pytest.raises(DuplicateTask):
        await app.client.enqueue(unique.step(user_id=1))


async def test_what_belongs_to_a_step_is_refused_when_it_is_enqueued(app: App) -> None:
    step = app.task(handler).step(user_id=1)

    with pytest.raises(InvalidOption, match="delay must be set on the step"):
        await app.client.enqueue(step, delay="5m")
    with pytest.raises(InvalidOption, match="delay must be set on the step"):
        app.sync_client.enqueue(step, delay="5m")
