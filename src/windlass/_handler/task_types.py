"""TaskTypes: the task types that a program declares, by their names and former names."""

import logging
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from .._policy.input.quote import suggestion
from ..errors import InvalidOption, UnknownTaskType
from .names import is_loaded_twice
from .spec import HandlerSpec

logger = logging.getLogger("windlass.client")


class TaskTypes(Mapping[str, HandlerSpec]):
    """The declared task types by name; `find` knows their aliases, too. It can be read from any thread."""

    def __init__(self) -> None:
        self._declared: dict[str, HandlerSpec] = {}
        self._handlers: dict[str, HandlerSpec] = {}  # by alias, too
        self._warned: set[str] = set()

    def __getitem__(self, name: str) -> HandlerSpec:
        return self._declared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def check(self, spec: HandlerSpec) -> None:
        """Raise InvalidOption if the name of a type or one of its aliases is taken."""
        for name in (spec.name, *spec.aliases):
            other = self._handlers.get(name)
            if other is not None and not is_loaded_twice(other.handler, spec.handler):
                what = "the task type" if name == other.name else f"an alias of {other.name!r},"
                raise InvalidOption(
                    f"{what} {name!r} is already declared on this app; choose another name (name=…)"
                )

    def add(self, spec: HandlerSpec) -> None:
        """Add a type; raises InvalidOption if its name or an alias is taken.

        One of a script replaces its own: a program may be run and then imported by its modules, too.
        """
        self.check(spec)
        # Replaced, not changed: other threads may be iterating over them.
        self._handlers = {**self._handlers, **dict.fromkeys((spec.name, *spec.aliases), spec)}
        self._declared = {**self._declared, spec.name: spec}

    def warn_if_unknown_elsewhere(self, spec: HandlerSpec) -> None:
        """Log once that no other process can know this type by its name, if so."""
        if spec.is_importable or spec.name in self._warned:
            return
        self._warned.add(spec.name)
        logger.warning(
            "the task type %s is named after its function only, as its program is no module that a worker "
            "could import (stdin, -c, a shell, a notebook): only a worker that declares this very name runs "
            "its tasks. Name it with @app.task(name=…), or declare it in a module that both import",
            spec.name,
        )

    def add_secret(self, secret: tuple[str, ...]) -> None:
        """Make these payload fields secret in every type declared so far."""
        for spec in self._declared.values():
            spec.defaults = replace(spec.defaults, secret=(*spec.defaults.secret, *secret))

    def find(self, name: str) -> HandlerSpec | None:
        """Return the type of this name or alias, or None."""
        return self._handlers.get(name)

    @property
    def handled(self) -> tuple[str, ...]:
        """All names of tasks that these types run: their own and their aliases."""
        return tuple(sorted(self._handlers))

    def declared(self, name: str) -> HandlerSpec:
        """Return the type of this name or alias; raises UnknownTaskType if there is none."""
        found = self.find(name)
        if found is None:
            known = ", ".join(sorted(self)) or "none"
            hint = suggestion(name, self._handlers, f"declared are: {known}")
            raise UnknownTaskType(f"no task type {name!r} is declared on this app{hint}")
        return found
