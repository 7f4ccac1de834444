"""Handlers: what can be declared as one, and how its arguments are checked."""

from typing import Any

import pytest

from windlass import (
    RESULT,
    App,
    InvalidOption,
    InvalidPayload,
)


@pytest.fixture
def app() -> App:
    return App("memory://")


async def handler(user_id: int = 0) -> None: ...


def test_a_misspelt_argument_is_named_with_what_was_meant(app: App) -> None:
    task_type = app.task(handler)
    enqueue: Any = task_type.enqueue

    with pytest.raises(InvalidPayload, match="has no parameter 'userid'; did you mean 'user_id'"):
        enqueue(userid=1)


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


def test_only_functions_become_task_types(app: App) -> None:
    make: Any = app.task

    with pytest.raises(InvalidOption, match="takes a function, not 'mail'"):
        make("mail")


def test_one_fatal_exception_needs_no_tuple(app: App) -> None:
    declared = app.task(fatal=ValueError)(handler).spec

    assert declared.fatal == (ValueError,)
