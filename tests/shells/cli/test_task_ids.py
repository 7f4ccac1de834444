"""Task ids by their first characters."""

from collections.abc import Callable

import pytest

from windlass import App
from windlass._cli.task_ids import whole_id
from windlass._model.task import NewTask

from .conftest import Run


def test_a_prefix_shows_the_task(run: Run, enqueue: Callable[..., str]) -> None:
    task_id = enqueue("shop.welcome", '{"user_id": 1}')
    for given in (task_id[:-1], task_id[:-1].upper(), task_id[:20], task_id):
        assert run("tasks", "show", given, "--json").row["id"] == task_id
    assert run("tasks", "attempts", task_id[:-1]).code == 0


async def test_the_lowest_id_of_a_prefix_is_found_too() -> None:
    app = App("memory://")
    lowest = "0198c0de-0000-7000-8000-000000000000"
    await app.store.enqueue([NewTask(id=lowest, root=lowest, type="t", payload=b"{}")])
    for size in (8, 20, 35, 36):
        assert await whole_id(app.operator, lowest[:size]) == lowest


def test_a_prefix_of_several_is_refused_with_two_of_them(run: Run) -> None:
    lines = '{"user_id": 1}\n' * 3
    made = run("enqueue", "shop.welcome", "--app", "shop:app", "--stdin", stdin=lines)
    first, second, third = sorted(made.out.split())
    # Ids begin with the time: at least 8 characters are equal.
    common = next(first[:size] for size in range(36, 0, -1) if third.startswith(first[:size]))

    ran = run("tasks", "cancel", common)

    assert ran.code == 3
    assert f"several tasks have an id that begins with {common}: {first}, {second}, …" in ran.err
    assert {row["state"] for row in run("tasks", "list", "--json").rows} == {"ready"}


def test_an_action_takes_prefixes_and_prints_whole_ids(run: Run, dead: Callable[..., list[str]]) -> None:
    (task_id,) = dead("boom")
    assert run("dead", "show", task_id[:-2], "--json").row["id"] == task_id
    assert run("dead", "replay", task_id[:-1], "--json").row == {"id": task_id, "done": "replayed"}


def test_a_prefix_without_a_task_is_not_found(run: Run, enqueue: Callable[..., str]) -> None:
    enqueue("shop.welcome", '{"user_id": 1}')
    ran = run("tasks", "show", "ffffffff-0")
    assert ran.code == 3
    assert "there is no task whose id begins with ffffffff-0" in ran.err


@pytest.mark.parametrize(
    "given", ["0198c0d", "zzzzzzzz", "0198c0de-0000-7000-8000-00000000abcd0", "0198c0de_"]
)
def test_what_cannot_begin_an_id_is_refused(run: Run, given: str) -> None:
    ran = run("tasks", "show", given)
    assert ran.code == 2
    assert "is not a task id" in ran.err
