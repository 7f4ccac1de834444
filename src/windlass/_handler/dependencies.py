"""Dependencies: what handlers get by annotation; opened before a run, closed after it."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias, get_type_hints

from msgspec import Struct

from ..errors import InvalidOption
from .context import Context, is_context
from .failure import add_origin
from .names import function_name

Overrides: TypeAlias = Mapping[Callable[..., Any], Callable[..., Any]]


class Depends:
    """What a parameter of a handler, or of another dependency, gets in each run.

        async def open_db(ctx: Context[State]) -> AsyncIterator[Db]:
            async with ctx.state.pool.acquire() as db:
                yield db

        @app.task
        async def charge(order: int, db: Annotated[Db, Depends(open_db)] = INJECTED) -> None: ...

    `function`: a function, whose result it is, or a generator that yields it once and is closed after the
    run; async or not. Its parameters are a `Context`, other dependencies, or have defaults.
    See docs/around.md.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __repr__(self) -> str:
        return f"Depends({function_name(self.function)})"


class Kind(StrEnum):
    """How the value of a provider is had."""

    VALUE = "value"
    COROUTINE = "coroutine"
    MANAGER = "manager"
    ASYNC_MANAGER = "async manager"


class Provider(Struct, frozen=True):
    """A function that gives a value for a run. `takes`: an earlier one by number, or None: the context."""

    what: str
    function: Callable[..., Any]  # as it was declared
    call: Callable[..., Any]
    kind: Kind
    takes: tuple[tuple[str, int | None], ...]

    @property
    def is_async(self) -> bool:
        return self.kind in (Kind.COROUTINE, Kind.ASYNC_MANAGER)

    def made(self, context: Context[Any], values: Sequence[Any]) -> Any:
        return self.call(**{name: context if n is None else values[n] for name, n in self.takes})


class Plan(Struct, frozen=True):
    """What to open for a run, in order; `gives` are the handler's parameters that get some of it."""

    providers: tuple[Provider, ...] = ()
    gives: tuple[tuple[str, int], ...] = ()

    def has(self, function: Callable[..., Any]) -> bool:
        """Whether it opens this dependency."""
        return any(one.function == function for one in self.providers)

    def call(self, handler: Callable[..., Any], context: Context[Any], arguments: dict[str, Any]) -> Any:
        """Call a handler with what it depends on. In its thread, or in a child process."""
        values: list[Any] = []
        with ExitStack() as stack:
            for one in self.providers:
                values.append(_opened(one, stack, context, values))
            return handler(**arguments, **{name: values[n] for name, n in self.gives})

    async def acall(
        self, handler: Callable[..., Any], context: Context[Any], arguments: dict[str, Any]
    ) -> Any:
        """Call an async handler with what it depends on, on its event loop."""
        values: list[Any] = []
        async with AsyncExitStack() as stack:
            for one in self.providers:
                values.append(await _aopened(one, stack, context, values))
            return await handler(**arguments, **{name: values[n] for name, n in self.gives})


def _opened(
    one: Provider, stack: ExitStack | AsyncExitStack, context: Context[Any], values: Sequence[Any]
) -> Any:
    try:
        made = one.made(context, values)
        if one.kind is not Kind.MANAGER:
            return made
        value = made.__enter__()
    except BaseException as error:
        add_origin(error, one.what)
        raise
    stack.push(partial(_close, one, made))
    return value


async def _aopened(one: Provider, stack: AsyncExitStack, context: Context[Any], values: Sequence[Any]) -> Any:
    if not one.is_async:
        return _opened(one, stack, context, values)
    try:
        made = one.made(context, values)
        if one.kind is Kind.COROUTINE:
            return await made
        value = await made.__aenter__()
    except BaseException as error:
        add_origin(error, one.what)
        raise
    stack.push_async_exit(partial(_aclose, one, made))
    return value


# They cannot hide the exception of a run: what is outside of them, a transaction perhaps, must get it, too.


def _close(one: Provider, manager: Any, *raised: Any) -> None:
    with _naming(one, raised[1]):
        manager.__exit__(*raised)


async def _aclose(one: Provider, manager: Any, *raised: Any) -> None:
    with _naming(one, raised[1]):
        await manager.__aexit__(*raised)


@contextmanager
def _naming(one: Provider, known: BaseException | None) -> Iterator[None]:
    """Add to what closing raises by which dependency, unless that is the exception of the run."""
    try:
        yield
    except BaseException as error:
        if error is not known:
            add_origin(error, one.what)
        raise


# -- plans -----------------------------------------------------------------------------------------


def plan_of(
    depends: Mapping[str, Depends],
    arounds: Iterable[Callable[..., Any]] = (),
    overrides: Overrides | None = None,
) -> Plan:
    """Plan what a handler with these parameters needs; `arounds` are generators that go around it.

    Raises InvalidOption if a dependency cannot be called, or the dependencies form a cycle.
    """
    planner = _Planner(overrides or {})
    for around in arounds:
        planner.add_around(around)
    gives = tuple((name, planner.number(one.function)) for name, one in depends.items())
    return Plan(tuple(planner.providers), gives)


class _Planner:
    def __init__(self, overrides: Overrides) -> None:
        self.providers: list[Provider] = []
        self._overrides = overrides
        self._numbers: dict[Callable[..., Any], int] = {}
        self._path: list[Callable[..., Any]] = []

    def add_around(self, around: Callable[..., Any]) -> None:
        parameter = next(iter(inspect.signature(around).parameters))
        what, call = f"around {function_name(around)}", contextmanager(around)
        self.providers.append(Provider(what, around, call, Kind.MANAGER, ((parameter, None),)))

    def number(self, function: Callable[..., Any]) -> int:
        """Return the number of this dependency's provider, after adding it and what it depends on."""
        function = self._overrides.get(function, function)
        if function in self._numbers:
            return self._numbers[function]
        if function in self._path:
            cycle = [*self._path[self._path.index(function) :], function]
            raise InvalidOption(f"the dependencies form a cycle: {' → '.join(map(function_name, cycle))}")
        self._path.append(function)
        takes = tuple(self._takes(function))
        self._path.pop()
        kind, call = _kind(function)
        self.providers.append(Provider(f"dependency {function_name(function)}", function, call, kind, takes))
        self._numbers[function] = len(self.providers) - 1
        return self._numbers[function]

    def _takes(self, function: Callable[..., Any]) -> Iterable[tuple[str, int | None]]:
        whose = f"the dependency {function_name(function)}" if callable(function) else repr(function)
        parameters, hints = parameters_of(function, whose)
        context_name, depends = injected(parameters, hints, whose)
        for name, parameter in parameters.parameters.items():
            if name == context_name:
                yield name, None
            elif name in depends:
                yield name, self.number(depends[name].function)
            elif parameter.default is parameter.empty and parameter.kind not in _VARIABLE:
                raise InvalidOption(
                    f"the dependency {function_name(function)} has a parameter {name!r} that nobody passes; "
                    f"annotate it with Context or Depends, or give it a default"
                )


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _kind(function: Callable[..., Any]) -> tuple[Kind, Callable[..., Any]]:
    """Tell how a dependency is called. One that contextlib has decorated is a context manager already."""
    if inspect.isasyncgenfunction(function):
        return Kind.ASYNC_MANAGER, asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return Kind.MANAGER, contextmanager(function)
    if inspect.iscoroutinefunction(function):
        return Kind.COROUTINE, function
    inner = inspect.unwrap(function)
    if inspect.isasyncgenfunction(inner):
        return Kind.ASYNC_MANAGER, function
    return (Kind.MANAGER if inspect.isgeneratorfunction(inner) else Kind.VALUE), function


# -- annotations -----------------------------------------------------------------------------------


def parameters_of(function: Callable[..., Any], whose: str) -> tuple[inspect.Signature, dict[str, Any]]:
    """Return the parameters of a function or class, and their annotations.

    Raises InvalidOption if it is not callable, or if annotations cannot be evaluated.
    """
    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidOption(f"Depends takes a function, not {function!r}") from None
    annotated = vars(function).get("__init__", function) if isinstance(function, type) else function
    try:
        return parameters, get_type_hints(annotated, include_extras=True)
    except TypeError:  # a callable without annotations of its own
        return parameters, {}
    except NameError:
        known = {"Context": Context, **getattr(inspect.unwrap(annotated), "__globals__", {})}
    try:
        return parameters, get_type_hints(annotated, known, include_extras=True)
    except NameError as error:
        raise InvalidOption(
            f"an annotation of {whose} cannot be resolved: {error}; define or import it before the task "
            f"type, not only for type checkers"
        ) from None


def injected(
    parameters: inspect.Signature, hints: Mapping[str, Any], whose: str
) -> tuple[str | None, dict[str, Depends]]:
    """Return the names of the parameters that the worker passes: the context's, and the dependencies'."""
    contexts = [name for name in parameters.parameters if is_context(hints.get(name))]
    if not contexts and "ctx" in parameters.parameters and "ctx" not in hints:
        contexts = ["ctx"]
    depends: dict[str, Depends] = {}
    for name, parameter in parameters.parameters.items():
        marks = [mark for mark in getattr(hints.get(name), "__metadata__", ()) if isinstance(mark, Depends)]
        if isinstance(parameter.default, Depends):
            raise InvalidOption(
                f"{whose} has {parameter}; write {name}: Annotated[…, {parameter.default!r}] = INJECTED"
            )
        if marks and parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidOption(f"{whose} takes {name!r} by position; make it a named parameter")
        if marks:
            depends[name] = marks[-1]
    return (contexts[0] if contexts else None), depends
