"""Declaring task types: what makes no sense is refused where it is written."""

from typing import Any

import pytest

from windlass import App, Backoff, InvalidOption, InvalidPayload, WorkerSettings


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
        ("secret", "card", "secret takes several names"),
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
    declared = app.task(fatal=ValueError)(handler).declared

    assert declared.fatal == (ValueError,)


def test_only_functions_become_task_types(app: App) -> None:
    make: Any = app.task

    with pytest.raises(InvalidOption, match="made of a function, not 'mail'"):
        make("mail")


def test_a_type_is_declared_once(app: App) -> None:
    app.task(name="twice")(handler)

    with pytest.raises(InvalidOption, match="declared twice"):
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
