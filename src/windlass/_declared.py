"""The declaration behind a task type: what a worker must know to run its tasks."""

import inspect
from collections.abc import Callable
from typing import Any

from ._model.options import Defaults
from ._policy.backoff import Delay
from ._policy.options import name as checked_name
from ._signature import Signature


class Declared:
    """A handler with its name, defaults and rules. Made once, never changed."""

    __slots__ = ("backoff", "defaults", "fatal", "handler", "is_async", "name", "process", "signature")

    def __init__(
        self,
        handler: Callable[..., Any],
        *,
        name: str | None,
        defaults: Defaults,
        backoff: Delay,
        fatal: tuple[type[BaseException], ...] = (),
        process: bool = False,
    ) -> None:
        self.name = checked_name(name or default_name(handler), "task type")
        self.handler = handler
        self.defaults = defaults
        self.backoff = backoff
        self.fatal = fatal
        self.process = process
        self.is_async = inspect.iscoroutinefunction(handler)
        self.signature = Signature(handler, self.name)


def default_name(handler: Callable[..., Any]) -> str:
    """The dotted name: the module, unless it is the program itself, and the function."""
    module = getattr(handler, "__module__", "__main__")
    qualified = getattr(handler, "__qualname__", type(handler).__qualname__).replace("<locals>.", "")
    return qualified if module == "__main__" else f"{module}.{qualified}"
