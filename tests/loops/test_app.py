"""App and task types: declarations, and the errors for wrong ones."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass import (
    RESULT,
    App,
    Backoff,
    DuplicateTask,
    InvalidOption,
    InvalidPayload,
    Retry,
    Snooze,
    WorkerSettings,
    chain,
)


@pytest.fixture
def app() -> App:
    return App("memory://")


async def handler(user_id: int = 0) -> None: ...


@pytest.mark.parametrize("option", ["que", "retries"])
def test_an_unknown_option_is_refused(app: App, option: str) -> None:
    unknown: dict[str, Any] = {option: 3}

    with pytest.raises(TypeError, match=option):
        app.task(**unknown)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("secret", "card", "secret must be a sequence of names"),
        ("fatal", ("ValueError",), "fatal takes exception classes"),
        ("fatal", int, "fatal takes exception classes"),
        ("backoff", "quick", "a backoff is a Backoff or a function"),
        ("queue", "a b", "queue"),
        ("priority", "urgent", "priority"),
        ("timeout", 0, "timeout"),
        ("max_attempts", 0, "max_attempts"),
    ],
)
def test_a_senseless_option_is_refused(app: App, option: str, value: Any, message: str) -> None:
    senseless: dict[str, Any] = {option: value}

    with pytest.raises(InvalidOption, match=message):
        app.task(**senseless)(handler)

    assert not app.types


def test_one_fatal_exception_needs_no_tuple(app: App) -> None:
    declared = app.task(fatal=ValueError)(handler).spec

    assert declared.fatal == (ValueError,)


def test_only_functions_become_task_types(app: App) -> None:
    make: Any = app.task

    with pytest.raises(InvalidOption, match="takes a function, not 'mail'"):
        make("mail")


def test_a_type_is_declared_once(app: App) -> None:
    app.task(name="twice")(handler)

    with pytest.raises(InvalidOption, match="already declared on this app"):
        app.task(name="twice")(handler)


def test_the_presets_are_at_hand() -> None:
    assert Backoff.QUICK.max_attempts == 6
    assert Backoff.PATIENT.cap == 1800
    assert Backoff.EXPONENTIAL.jitter == 0.5
    assert Backoff.ADDITIVE.spread == 1


def test_a_misspelt_argument_is_named_with_what_was_meant(app: App) -> None:
    task_type = app.task(handler)
    enqueue: Any = task_type.enqueue

    with pytest.raises(InvalidPayload, match="has no parameter 'userid'; did you mean 'user_id'"):
        enqueue(userid=1)


async def test_only_steps_are_enqueued(app: App) -> None:
    task_type: Any = app.task(handler)

    with pytest.raises(InvalidOption, match=r"make one with a task type's step\(\)"):
        await app.client.enqueue(task_type)


@pytest.mark.parametrize(("name", "value"), [("lease", "30s"), ("heartbeat", 5), ("queues", "mail")])
def test_senseless_worker_settings_are_refused(name: str, value: Any) -> None:
    senseless: dict[str, Any] = {name: value}

    with pytest.raises(InvalidOption, match=name):
        WorkerSettings(**senseless)


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


def test_the_rest_of_a_steps_arguments_is_checked_at_once(app: App) -> None:
    @app.task(name="two")
    async def two(a: int, b: int = 0) -> None: ...

    wrong: Any = two.step
    assert two.step(a=RESULT, b=1).result_into == "a"
    with pytest.raises(InvalidPayload, match=r"`\$\.b`"):
        wrong(a=RESULT, b="x")
    with pytest.raises(InvalidPayload, match="a and b are both RESULT"):
        wrong(a=RESULT, b=RESULT)
    with pytest.raises(InvalidPayload, match="missing"):
        wrong(b=RESULT)


@pytest.mark.parametrize("wrong", [3, "quick"])
def test_an_apps_backoff_is_checked(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="a backoff is"):
        App("memory://", backoff=wrong)


def test_signals_take_durations_as_text() -> None:
    assert Snooze("5m").delay == timedelta(minutes=5)
    assert Retry(after="1h").after == timedelta(hours=1)
    assert Retry().after is None


def test_an_app_can_be_a_worker_process(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "from windlass import App, WorkerSettings\n"
        "app = App(f'sqlite:///{__file__}.db')\n"
        "@app.task(name='hello')\n"
        "async def hello() -> None:\n"
        "    print('ran', flush=True)\n"
        "if __name__ == '__main__':\n"
        "    hello.enqueue()\n"
        "    app.run_worker(WorkerSettings(drain=True))\n"
    )

    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=30, check=True)

    assert ran.stdout == "ran\n"
