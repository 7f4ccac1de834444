"""Handlers: what can be declared as one, and how its arguments are checked."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from windlass import (
    RESULT,
    App,
    Context,
    InvalidOption,
    InvalidPayload,
    WorkerSettings,
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


def test_methods_are_refused_when_they_are_declared(app: App) -> None:
    with pytest.raises(InvalidOption, match=r"Mailer.send' is a method, .* no 'self' .* top level"):

        class Mailer:
            @app.task
            def send(self, to: str) -> None: ...

    with pytest.raises(InvalidOption, match="is a method, and a worker has no 'cls'"):

        class Other:
            @classmethod
            @app.task
            def send(cls, to: str) -> None: ...

    with pytest.raises(InvalidOption, match=r"not a class method, .* no class to call it on; declare"):

        class Third:
            @app.task
            @classmethod
            def send(cls, to: str) -> None: ...

    with pytest.raises(InvalidOption, match=r"a parameter 'self', which nobody passes; .*`ctx: Context`"):

        @app.task
        def ported(self: Any, to: str) -> None: ...

    assert not app.types


def numbers(upto: int) -> Iterator[int]:
    yield from range(upto)


async def anumbers(upto: int) -> AsyncIterator[int]:
    yield upto


class Numbers:
    def __call__(self, upto: int) -> Iterator[int]:
        yield upto


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    "generator",
    [
        numbers,
        anumbers,
        Numbers(),
        functools.partial(numbers),
        logged(anumbers),
        logged(functools.partial(numbers)),
    ],
    ids=["def", "async def", "object", "partial", "decorated", "decorated partial"],
)
def test_generators_are_refused_when_they_are_declared(app: App, generator: Callable[..., Any]) -> None:
    """A call of one runs nothing: the task would be completed without having run."""
    with pytest.raises(InvalidOption, match=r"'count' is a generator function, .*; return a list instead"):
        app.task(name="count")(generator)

    assert not app.types


def test_a_handler_may_use_a_generator(app: App) -> None:
    @app.task(name="count")
    @logged
    def count(upto: int) -> list[int]:
        return list(numbers(upto))

    assert count(2) == [0, 1]


async def test_what_needs_no_object_is_no_method(app: App) -> None:
    class Mailer:
        @staticmethod
        @app.task
        def static(to: str) -> str:
            return to

        @app.task
        @staticmethod
        def also_static(to: str) -> str:
            return to

        def send(self, to: str) -> str:
            return to

        def __call__(self, to: str) -> str:
            return to

    bound, called = app.task(name="bound")(Mailer().send), app.task(name="called")(Mailer())

    @app.task
    def with_context(self: Context, to: str) -> str:
        return f"{self.task.attempt}{to}"

    @app.task
    def nested(cls: str) -> str:
        return cls

    made: list[Any] = [Mailer.static, Mailer.also_static, bound, called]
    handles = [await one.aenqueue("a") for one in made]
    called_with_context: Any = with_context
    handles += [await called_with_context.aenqueue(to="a"), await nested.aenqueue("a")]
    await app.worker(WorkerSettings(drain=True)).run()

    assert [await one.result(timeout=1) for one in handles] == ["a", "a", "a", "a", "1a", "a"]


def test_one_fatal_exception_needs_no_tuple(app: App) -> None:
    declared = app.task(fatal=ValueError)(handler).spec

    assert declared.fatal == (ValueError,)
