"""HandlerSpec: what a task type declares, and a worker needs to run its tasks."""

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

from msgspec.structs import replace

from .._model.options import Defaults
from .._policy.backoff import Backoff, Delay
from .._policy.input.fingerprint import check_fields
from .._policy.input.new_task import checked_secret
from .._policy.input.options import checked_name, parse_duration
from .._policy.input.payload import decode
from .._policy.input.quote import quoted
from .._policy.secrets.fields import merged
from ..errors import InvalidOption, InvalidPayload
from .around import GeneratorAround
from .dependencies import Overrides, Plan, plan_of
from .names import function_name, is_generator_function, module_name
from .secret_fields import check_secret
from .signature import Signature

logger = logging.getLogger("windlass.task")

_DEFAULT_BACKOFF = Backoff()

OnStuck: TypeAlias = Literal["hold", "replace"]
"""What becomes of the slot of a handler that runs on after its timeout."""


class HandlerSpec:
    """A handler, its name, its tasks' defaults and its retry rules. Immutable.

    Raises InvalidOption if one of them is wrong.
    """

    __slots__ = (
        "aliases",
        "backoff",
        "defaults",
        "example",
        "fatal",
        "handler",
        "is_async",
        "is_importable",
        "name",
        "on_stuck",
        "plan",
        "process",
        "signature",
    )

    def __init__(  # noqa: PLR0913  made in one place, by the app
        self,
        handler: Callable[..., Any],
        *,
        name: str | None,
        defaults: Defaults,
        backoff: Delay,
        fatal: type[BaseException] | tuple[type[BaseException], ...] = (),
        process: bool = False,
        on_stuck: OnStuck = "hold",
        aliases: tuple[str, ...] = (),
        secret: tuple[str, ...] = (),
        example: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(handler, classmethod):
            raise InvalidOption(
                "@app.task takes a function, not a class method, as a worker has no class to call it on; "
                "declare a function at the top level of a module, which may call the method"
            )
        if not callable(handler):
            raise InvalidOption(f"@app.task takes a function, not {handler!r}; pass options by name")
        self.name = checked_name(name or function_name(handler), "task type")
        if is_generator_function(handler):
            raise InvalidOption(
                f"the handler of {self.name!r} is a generator function, so a call of it runs nothing; "
                f"return a list instead of using `yield`, or enqueue a task for each value"
            )
        self.aliases = tuple(checked_name(alias, "alias") for alias in aliases)
        self.is_importable = name is not None or module_name(handler) is not None
        self.handler = handler
        self.backoff = safe_backoff(backoff)
        self.fatal = (fatal,) if isinstance(fatal, type) else tuple(fatal)
        for one in self.fatal:
            if not isinstance(one, type) or not issubclass(one, BaseException):
                raise InvalidOption(f"fatal takes exception classes, not {one!r}")
        self.process = process
        if process and "<" in getattr(handler, "__qualname__", "<"):
            raise InvalidOption(
                f"the handler of {self.name!r} has process=True, so a child process must find it by import; "
                f"define it at the top level of a module"
            )
        self.is_async = inspect.iscoroutinefunction(handler)
        self.on_stuck = self._checked_on_stuck(on_stuck)
        self.signature = Signature(handler, self.name)
        self.defaults = replace(defaults, secret=merged(defaults.secret, secret, self.signature.secret))
        self.signature.masked = self.defaults.secret
        if secret:
            check_secret(secret, self.signature.known_documents, f"the handler of {self.name!r}")
        self.plan = self.new_plan()
        if self.signature.fields is not None:
            check_fields(defaults.unique, self.signature.fields, f"the handler of {self.name!r}")
        self.example = None if example is None else self._checked(example)

    def new_plan(self, arounds: Iterable[GeneratorAround] = (), overrides: Overrides | None = None) -> Plan:
        """Plan what to open for its runs; raises InvalidOption if it cannot have these dependencies."""
        plan = plan_of(self.signature.depends, arounds, overrides)
        if not self.is_async and (needs_loop := [one.what for one in plan.providers if one.is_async]):
            raise InvalidOption(
                f"the handler of {self.name!r} is not async, but the {needs_loop[0]} is; dependencies run "
                f"where the handler runs, so make it `async def` or the dependency `def`"
            )
        return plan

    def check_secret(self, names: object) -> None:
        """Raise InvalidOption if a caller's option `secret` misspells a field, as at the declaration."""
        known = self.defaults.secret
        if others := [name for name in checked_secret(names) if name not in known]:
            check_secret(others, self.signature.known_documents, f"the handler of {self.name!r}")

    def _checked_on_stuck(self, on_stuck: OnStuck) -> OnStuck:
        if on_stuck not in get_args(OnStuck):
            raise InvalidOption(f"on_stuck must be 'hold' or 'replace', not {quoted(on_stuck)}")
        if on_stuck == "replace" and (self.is_async or self.process):
            what = "runs in a child process, which is killed" if self.process else "is async, and cancelled"
            raise InvalidOption(
                f"the handler of {self.name!r} {what} at its timeout; on_stuck='replace' is for handlers "
                f"that run in threads: `def`, without process=True"
            )
        return on_stuck

    def _checked(self, example: Mapping[str, Any]) -> dict[str, Any]:
        try:
            payload, _ = self.signature.payload((), dict(example))
        except InvalidPayload as error:
            raise InvalidOption(f"the example of {self.name!r} is not a payload of it: {error}") from None
        plain: dict[str, Any] = decode(payload)
        return plain


def safe_backoff(backoff: Delay) -> Delay:
    """Wrap a custom backoff: if it raises or returns no delay, log that and use the default backoff."""
    if isinstance(backoff, Backoff):
        return backoff
    if not callable(backoff):
        raise InvalidOption(f"backoff must be a Backoff or a function of (attempt, draw), got {backoff!r}")

    def wrapped(attempt: int, draw: float) -> timedelta:
        try:
            return parse_duration(backoff(attempt, draw), "backoff's delay")
        except Exception:
            logger.exception("a custom backoff failed; the default backoff is used instead")
            return _DEFAULT_BACKOFF(attempt, draw)

    return wrapped
