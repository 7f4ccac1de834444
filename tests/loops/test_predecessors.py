"""Results of predecessors: what is secret in them stays secret in the tasks that take them."""

from typing import Any

import msgspec
import pytest

from tests.loops import child_tasks
from tests.loops.workers import drained
from windlass import RESULT, App, chain
from windlass._documents.tasks import task_document
from windlass._model.options import Defaults
from windlass._model.task import Task
from windlass._stores.memory import MemoryStore
from windlass.tasktype import TaskType

IBAN = "CH93 0076 2011"
Type = TaskType[Any, Any, Any]


@pytest.fixture
def app() -> App:
    return App(MemoryStore())


@pytest.fixture
def opened(app: App) -> Type:
    @app.task(name="open", secret=("bank.iban",))
    async def open_account() -> dict[str, Any]:
        return {"bank": {"iban": IBAN}, "owner": "ann"}

    return open_account


@pytest.fixture
def merge(app: App) -> Type:
    @app.task(name="merge", max_attempts=1)
    async def merge(accounts: list[dict[str, Any]]) -> None:
        raise ValueError(f"cannot merge {accounts}")

    return merge


@pytest.fixture
def copy(app: App) -> Type:
    @app.task(name="copy")
    async def copy(account: object) -> object:
        return account

    return copy


def assert_masked(task: Task) -> None:
    """No view of the task, and nothing of its error, shows the secret; they do show what is not."""
    shown = msgspec.json.encode(task_document(task)).decode()
    stored = f"{task.error.message}{task.error.traceback}" if task.error else "[secret] ann"
    for text in (shown, stored):
        assert IBAN not in text
        assert "[secret]" in text
        assert "ann" in text


async def test_secrets_in_a_groups_results_do_not_show_in_the_error_of_its_last_task(
    app: App, opened: Type, merge: Type
) -> None:
    steps = [opened.step(), opened.step()]
    handles = await app.client.enqueue_group(steps, merge.step(accounts=RESULT))
    await drained(app)

    task = await handles[-1].task()
    assert task.error is not None
    assert_masked(task)


async def test_nor_if_whoever_enqueued_the_group_did_not_know_the_types(
    app: App, opened: Type, merge: Type
) -> None:
    sender = App(app.store)
    first = sender.builder.step("open", b"{}", {}, Defaults())
    handles = await sender.client.enqueue_group([first], merge.step(accounts=RESULT))
    await drained(app)

    task = await handles[-1].task()
    assert task.secret == ()
    assert task.error is not None
    assert IBAN not in f"{task.error.message}{task.error.traceback}"
    assert "[secret]" in task.error.message


async def test_nor_if_it_runs_in_a_child_process(opened: Type) -> None:
    app = child_tasks.app
    before = app.use_store(opened._app.store)
    try:
        app.types.find("open") or app.types.add(opened.spec)
        group = [opened.step()]
        handles = await app.client.enqueue_group(group, child_tasks.merge.step(accounts=RESULT))
        await drained(app, queues=("default",))

        task = await handles[-1].task()
        assert task.error is not None
        assert task.error.type == "ValueError"
        assert_masked(task)
    finally:
        app.use_store(before)


async def test_a_result_that_is_passed_on_is_masked_as_it_was(app: App, opened: Type, copy: Type) -> None:
    copies = chain(opened.step(), copy.step(account=RESULT), copy.step(account=RESULT))
    handle = await app.client.enqueue(copies)
    group = await app.client.enqueue_group([opened.step()], copy.step(account=RESULT))
    ends = await app.client.enqueue_group(
        [chain(copy.step(account=1), opened.step())], copy.step(account=RESULT)
    )
    await drained(app)

    for task_id in (*handle.following, group[-1].id, ends[-1].id):
        task = await app.operator.task(task_id)
        assert IBAN.encode() in (task.result or b"")
        assert_masked(task)


async def test_a_result_that_is_passed_on_twice_is_masked_as_it_was(
    app: App, opened: Type, copy: Type
) -> None:
    @app.task(name="renamed")
    async def renamed(accounts: list[dict[str, Any]]) -> dict[str, str]:
        return {"told": f"{accounts[0]['bank']['iban']}", "owner": "ann"}

    *_, first = await app.client.enqueue_group([opened.step()], renamed.step(accounts=RESULT))
    second = await app.client.enqueue(copy.step(account=RESULT), after=[first])
    third = await app.client.enqueue(copy.step(account=RESULT), after=[second])
    await drained(app)

    for handle in (first, second, third):
        task = await app.operator.task(handle.id)
        assert IBAN.encode() in (task.result or b"")
        assert_masked(task)


async def test_a_step_that_takes_no_result_inherits_nothing(app: App, opened: Type, copy: Type) -> None:
    handle = await app.client.enqueue(chain(opened.step(), copy.step(account=1)))
    await drained(app)

    assert (await app.operator.task(handle.following[0])).secret == ()
