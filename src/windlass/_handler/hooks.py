"""Hooks: what a program declares to run around its handlers."""

from collections.abc import Callable
from copy import copy
from typing import TypeAlias, cast

from .._model.task import Task
from .around import Around, AsyncAround, GeneratorAround, is_generator
from .dependencies import Overrides, Plan
from .lifespan import Lifespan, Lifespans, check_lifespan
from .spec import HandlerSpec

ErrorHook: TypeAlias = Callable[[Task, BaseException], object]


class Hooks:
    """The lifespans, arounds and error hooks of an app, in the order in which they were declared."""

    def __init__(self, app: object) -> None:
        self._app = app
        self._lifespans: list[Lifespan] = []
        self._generators: list[GeneratorAround] = []
        self._overrides: Overrides = {}
        self._plans: dict[str, Plan] = {}  # of task types, if they are not those that the types declare
        self.arounds: list[AsyncAround] = []
        self.error_hooks: list[ErrorHook] = []

    def add_lifespan(self, lifespan: Lifespan) -> None:
        """Add a lifespan; raises InvalidOption if it cannot be one."""
        check_lifespan(lifespan)
        self._lifespans.append(lifespan)

    def add_around(self, around: Around) -> None:
        """Add an around; raises InvalidOption if it cannot be one."""
        if is_generator(around):
            self._generators.append(cast(GeneratorAround, around))
            self._plans.clear()
        else:
            self.arounds.append(cast(AsyncAround, around))

    def with_error_hook(self, hook: ErrorHook) -> "Hooks":
        """Return these with one more error hook."""
        made = copy(self)
        made.error_hooks = [*self.error_hooks, hook]
        return made

    @property
    def has_lifespans(self) -> bool:
        return bool(self._lifespans)

    def lifespans(self) -> Lifespans:
        """Return the lifespans, to be run once in this process."""
        return Lifespans(self._lifespans, self._app)

    def override(self, overrides: Overrides) -> None:
        """Use other functions for these dependencies, and no others, from now on. For tests."""
        self._overrides = overrides
        self._plans.clear()

    def plan(self, spec: HandlerSpec) -> Plan:
        """Return what to open for a run of this type."""
        if not self._generators and not self._overrides:
            return spec.plan
        if spec.name not in self._plans:
            self._plans[spec.name] = spec.new_plan(self._generators, self._overrides)
        return self._plans[spec.name]
