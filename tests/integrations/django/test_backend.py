"""The backend of Django's Tasks framework, with a real worker."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test.utils import override_settings
from django.utils import timezone

from tests.django_settings import BACKEND
from tests.integrations.django.framework_tasks import (
    add,
    ask_for_retry,
    attempt,
    count_groups,
    decline,
    explode,
    fail_when_told,
    may_fail,
    ran,
    return_object,
    wait_for_cancel,
)
from tests.integrations.django.test_worker import drain
from tests.loops.workers import eventually
from windlass import By, WorkerSettings
from windlass._model.task import Error
from windlass.integrations.django import app
from windlass.integrations.django.backend import WindlassBackend
from windlass.integrations.django.task_results import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    _task_error,
    task_enqueued,
    task_finished,
    task_started,
)

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def signals() -> Iterator[list[tuple[str, Any]]]:
    """The signals that were sent, with the status of the result at that time."""
    sent: list[tuple[str, Any]] = []
    receivers = []
    for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def note(sender: type, task_result: Any, name: str = name, **_: Any) -> None:
            assert sender is WindlassBackend
            sent.append((name, task_result.status))

        signal.connect(note, weak=False)
        receivers.append((signal, note))
    yield sent
    for signal, note in receivers:
        signal.disconnect(note)


def test_it_supports_everything() -> None:
    backend = add.get_backend()

    assert isinstance(backend, WindlassBackend)
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


def test_a_task_is_run_by_a_worker(signals: list[tuple[str, Any]]) -> None:
    result = add.enqueue(2, b=3)
    assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [2], {"b": 3})
    assert add.get_result(result.id) == result

    drain()
    result.refresh()

    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 5)
    assert (result.attempts, result.errors) == (1, [])
    assert result.started_at == result.last_attempted_at < result.finished_at
    assert result.enqueued_at < result.finished_at < datetime.now() + timedelta(minutes=1)  # noqa: DTZ005
    assert signals == [
        ("enqueued", TaskResultStatus.READY),
        ("started", TaskResultStatus.RUNNING),
        ("finished", TaskResultStatus.SUCCESSFUL),
    ]


def test_an_async_task_uses_the_orm() -> None:
    Group.objects.create(name="A1")
    result = async_to_sync(count_groups.aenqueue)("A1")

    drain()

    assert async_to_sync(count_groups.aget_result)(result.id).return_value == 1


def test_a_task_fails_after_its_last_attempt(signals: list[tuple[str, Any]]) -> None:
    result = explode.enqueue()

    drain()
    result.refresh()

    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 2, 2)
    assert result.errors[0].exception_class is pytest.UsageError
    assert result.errors[0].traceback.endswith("UsageError: boom\n")
    assert [name for name, _ in signals] == ["enqueued", "started", "started", "finished"]
    assert signals[-1] == ("finished", TaskResultStatus.FAILED)


@pytest.mark.parametrize(
    ("task", "attempts"),
    [(return_object, 1), (ask_for_retry, 2), (decline, 1)],
    ids=["object", "retry", "fatal"],
)
def test_a_task_that_is_buried_finishes_once(
    task: Any, attempts: int, signals: list[tuple[str, Any]]
) -> None:
    result = task.enqueue()

    drain()
    result.refresh()

    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, attempts)
    assert [name for name, _ in signals] == ["enqueued", *["started"] * attempts, "finished"]
    assert signals[-1] == ("finished", TaskResultStatus.FAILED)


def test_a_result_that_is_not_json_says_so() -> None:
    ran.clear()
    result = return_object.enqueue()

    drain()
    result.refresh()

    assert ran == ["object"]
    assert result.errors[0].exception_class is TypeError
    assert "the handler ran, but its result is not JSON" in result.errors[0].traceback


@pytest.mark.parametrize(
    ("ours", "shown"),
    [
        ("TimedOut", TimeoutError),
        ("WorkerLost", RuntimeError),
        ("ProcessDied", RuntimeError),
        ("ValueError", ValueError),
    ],
)
def test_an_error_without_a_class_has_one_for_django(ours: str, shown: type[Exception]) -> None:
    assert _task_error(Error(type=ours, message="why")).exception_class is shown


def test_a_receiver_that_fails_does_not_change_the_end(caplog: pytest.LogCaptureFixture) -> None:
    def broken(**_: Any) -> None:
        raise LookupError("in the receiver")

    task_finished.connect(broken, weak=False)
    try:
        fine, wrong = add.enqueue(1), explode.enqueue()
        drain()
    finally:
        task_finished.disconnect(broken)
    fine.refresh()
    wrong.refresh()

    assert (fine.status, fine.attempts) == (TaskResultStatus.SUCCESSFUL, 1)
    assert wrong.errors[-1].exception_class is pytest.UsageError
    assert caplog.text.count("LookupError: in the receiver") == 2


def test_a_task_that_is_released_at_shutdown_has_not_finished(signals: list[tuple[str, Any]]) -> None:
    ran.clear()
    wait_for_cancel.enqueue()

    async def work() -> None:
        worker = app.worker(WorkerSettings(grace=timedelta(0)))
        run = asyncio.create_task(worker.run())
        try:
            await eventually(lambda: "waiting" in ran)
            worker.stop()
            await asyncio.wait_for(run, 20)
        finally:
            await app.close()

    asyncio.run(work())
    assert [name for name, _ in signals] == ["enqueued", "started"]

    drain()
    assert signals[-1] == ("finished", TaskResultStatus.SUCCESSFUL)


@pytest.mark.parametrize("task", [wait_for_cancel, fail_when_told], ids=["stops", "fails"])
def test_a_task_that_is_cancelled_while_it_runs_finishes_once(
    task: Any, signals: list[tuple[str, Any]]
) -> None:
    ran.clear()
    may_fail.clear()
    result = task.enqueue()

    async def work() -> None:
        worker = app.worker(WorkerSettings(heartbeat=timedelta(seconds=0.05)))
        run = asyncio.create_task(worker.run())
        try:
            await eventually(lambda: "waiting" in ran)
            await app.operator.cancel_one(result.id, by=By(who="ann", why="not needed"))
            # Only the second is still running then: a thread cannot be interrupted.
            await eventually(lambda: all(run.is_stopping for run in worker._slots.running.values()))
            may_fail.set()
            await eventually(lambda: len(signals) == 3)
            worker.stop()
            await asyncio.wait_for(run, 20)
        finally:
            may_fail.set()
            await app.close()

    asyncio.run(work())
    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    assert [name for name, _ in signals] == ["enqueued", "started", "finished"]
    assert signals[-1] == ("finished", TaskResultStatus.FAILED)


def test_a_task_whose_last_attempt_times_out_has_finished(signals: list[tuple[str, Any]]) -> None:
    ran.clear()
    result = wait_for_cancel.using(backend="brief").enqueue()

    drain()
    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    assert signals[-1] == ("finished", TaskResultStatus.FAILED)


def test_the_context_has_the_attempt() -> None:
    result = attempt.enqueue()

    drain()
    result.refresh()

    assert result.return_value == 1


def test_priority_and_run_after() -> None:
    ran.clear()
    later = add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    add.enqueue(2)
    add.using(priority=100).enqueue(3)

    drain(slots=1)
    later.refresh()

    assert ran == ["3+0", "2+0"]
    assert later.status == TaskResultStatus.READY


def test_a_task_of_a_transaction_that_is_rolled_back_does_not_exist() -> None:
    with transaction.atomic():
        result = add.enqueue(1)
        transaction.set_rollback(True)

    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(result.id)


@pytest.mark.parametrize("unknown", ["123", "01a1e231-3c36-7000-88ca-ca2e06f9e33e"])
def test_an_unknown_result_does_not_exist(unknown: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(unknown)


def test_a_wrong_option_is_refused() -> None:
    with (
        override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"max_attempt": 1}}}),
        pytest.raises(ImproperlyConfigured, match="did you mean 'max_attempts'"),
    ):
        add.enqueue(1)
