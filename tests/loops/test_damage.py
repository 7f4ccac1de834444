"""Damaged tasks in the loops: a worker buries each alone and runs the others."""

import pytest

from tests.loops.workers import drained, tasks
from windlass import App, State
from windlass._model.task import DAMAGED
from windlass._observe.damage import damaged_tasks
from windlass.testing.conformance.steps import a_task
from windlass.testing.conformance.work.damage import BAD


@pytest.mark.parametrize("number", range(len(BAD)))
async def test_a_worker_buries_it_and_runs_the_others(number: int) -> None:
    app = App("memory://")

    @app.task(name="mail.send")
    async def send(to: str) -> str:
        return to

    await app.store.open()
    await app.store.enqueue([a_task(), bad := a_task(**BAD[number]), a_task()])
    await drained(app)

    states = {task.id: task for task in await tasks(app)}
    assert states.pop(bad.id).state is State.DEAD
    assert {task.state for task in states.values()} == {State.COMPLETED}


async def test_the_check_names_it() -> None:
    app = App("memory://")
    await app.store.open()
    assert await damaged_tasks(app.store) == ()
    await app.store.enqueue([a_task(**one) for one in BAD])
    (finding,) = await damaged_tasks(app.store)
    assert finding.message.startswith(f"{len(BAD)} damaged tasks among the newest {len(BAD)}")
    assert all((task.as_dict()["error"] or {}).get("type") == DAMAGED for task in (await tasks(app)))
