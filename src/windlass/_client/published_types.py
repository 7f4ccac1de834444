"""Publish a program's task types to the store, and look up the types that other programs have published."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

from msgspec.structs import replace

from .._encryption.encrypted_store import keyring_of
from .._handler.predecessors import payload_with_results
from .._handler.spec import HandlerSpec
from .._handler.task_types import TaskTypes
from .._model.limit import Limit
from .._model.options import DeclaredType, Defaults, by_name_or_alias
from .._model.queue import Retention
from .._model.schedule import Schedule
from .._model.task import NewTask, Task
from .._policy.backoff import Delay
from .._policy.input.payload import decode
from .._policy.input.quote import printable
from .._policy.secrets.encrypted import has_secret_fields
from .._policy.secrets.fields import WHOLE, merged
from .._policy.secrets.places import secret_paths
from .._policy.secrets.shown import Secretive, secrets_of, with_type_secrets
from .._policy.task_type import changes, check_encrypted, declared_type, stored_backoff
from .._store.protocol import Store
from ..signals import Fatal
from .records import list_records

logger = logging.getLogger("windlass.app")

FRESH_SECONDS = 5.0
"""How long published types are used before they are read again."""


async def publish_types(store: Store, types: Iterable[HandlerSpec], retention: Retention | None) -> None:
    """Store the types that are new or have changed, and warn of those that were declared otherwise.

    The last program to publish a type wins. Types of other programs, and removed ones, stay as they are:
    their tasks may outlive them. Types with secret fields are marked as encrypted if this program encrypts; a
    program without keys leaves the mark.
    """
    published = {one.name: one for one in await list_records(store, DeclaredType)}
    has_keys = keyring_of(store) is not None
    declared = [
        replace(
            declared_type(one.name, one.defaults, one.backoff, aliases=one.aliases, retention=retention),
            encrypted=has_secret_fields(one.defaults.secret)
            and (has_keys or _is_encrypted(published.get(one.name))),
        )
        for one in types
    ]
    locked = [one.name for one in declared if one.encrypted and not has_keys]
    if locked:
        logger.warning(
            "the secret fields of %s are encrypted, and this program has no encryption keys: it can neither "
            "enqueue nor run such tasks. Set WINDLASS_ENCRYPTION_KEYS or WINDLASS_ENCRYPTION_KEY_FILE",
            ", ".join(locked),
        )
    for one in declared:
        before = published.get(one.name, one)
        if changed := changes(before, one):
            logger.warning(
                "task type %s was declared otherwise and now has: %s; if two programs declare it, the last "
                "one to start wins",
                one.name,
                printable(", ".join(changed)),
            )
    await asyncio.gather(*[store.put(one) for one in declared if published.get(one.name) != one])


def _is_encrypted(published: DeclaredType | None) -> bool:
    return published is not None and published.encrypted


class KnownTypes:
    """The task types that a program can name: those that it declares, else those published to the store.

    `secret`: payload fields that are secret in every type.
    """

    def __init__(self, store: Store, declared: TaskTypes, secret: tuple[str, ...] = ()) -> None:
        self._store = store
        self._secret = secret
        self._published: Mapping[str, DeclaredType] = {}
        self._fresh_until = 0.0
        self.declared = declared

    async def refresh(self, *, at_once: bool = False) -> None:
        """Read the published types, unless that was done a few seconds ago and need not be `at_once`.

        While one call reads them again, others use those that are known.
        """
        before = self._fresh_until
        if not at_once and monotonic() < before:
            return
        if before:
            self._fresh_until = monotonic() + FRESH_SECONDS
        try:
            self._published = by_name_or_alias(await list_records(self._store, DeclaredType))
        except BaseException:
            self._fresh_until = before
            raise
        self._fresh_until = monotonic() + FRESH_SECONDS

    def add_secret(self, secret: tuple[str, ...]) -> None:
        """Make these fields secret in every type, too."""
        self._secret = (*self._secret, *secret)
        self.declared.add_secret(secret)

    async def require_keys(self, batch: Sequence[NewTask]) -> None:
        """Raise Refused if secret fields of these tasks must be encrypted and this program has no keys."""
        if not any(new.secret or new.next for new in batch) or keyring_of(self._store) is not None:
            return
        if any(secrets_of(new) for new in batch):
            await self.refresh()
            self.check_all_keys(batch)

    def check_all_keys(self, batch: Sequence[NewTask]) -> None:
        """Do the same without reading from the store, as of the last `refresh`."""
        for new in batch:
            if new.secret or new.next:
                self.check_keys(new)

    def check_keys(self, one: Task | NewTask | Schedule) -> None:
        """Do the same for one task or schedule, and the steps that follow it."""
        if keyring_of(self._store) is None:
            for name, secret in secrets_of(one):
                check_encrypted(self._published.get(name), secret)

    def check_secret(self, name: str, options: Mapping[str, Any]) -> None:
        """Raise InvalidOption if the option `secret` misspells a field of a type that is declared here."""
        if "secret" in options and (spec := self.declared.find(name)) is not None:
            spec.check_secret(options["secret"])

    def forget(self) -> None:
        """Read the published types again when they are next needed, as the store is another one."""
        self._published, self._fresh_until = {}, 0.0

    def defaults(self, name: str) -> Defaults:
        """Return the default options of a type's tasks; of a published type, as of the last `refresh`."""
        published = self._published.get(name)
        if (spec := self.declared.find(name)) is None:
            defaults = Defaults() if published is None else published.defaults
        else:
            defaults = spec.defaults
            if published is None or published.defaults.secret == defaults.secret:
                return defaults
        return replace(defaults, secret=self.secret_of(name))

    def secret_of(self, name: str) -> tuple[str, ...]:
        """Return the secret fields of a type: those of this app, of its declaration, and of the record."""
        spec, published = self.declared.find(name), self._published.get(name)
        if spec is None and published is None:
            return self._secret
        return merged(
            self._secret,
            () if spec is None else spec.defaults.secret,
            () if published is None else published.defaults.secret,
        )

    def secret_for(self, limit: Limit) -> tuple[str, ...]:
        """Return the fields that are secret in a type that a limit applies to, as of the last `refresh`."""
        if limit.type is not None:
            return self.secret_of(limit.type)
        names = {*self._published, *(spec.name for spec in self.declared.values())}
        return merged(self._secret, *(self.secret_of(name) for name in sorted(names)))

    async def with_secrets(self, found: Iterable[Secretive]) -> tuple[Secretive, ...]:
        """Return these tasks or schedules with the secret fields that their types have by now."""
        await self.refresh()
        return tuple(with_type_secrets(one, self.secret_of) for one in found)

    async def with_result_secrets(self, found: Iterable[Task]) -> tuple[Task, ...]:
        """Return tasks to show, with the secret fields of their types and the secret parts of their results.

        A task that took results of others may return what is secret in these, under any name.
        """
        tasks = await self.with_secrets(found)
        return tuple([await self._with_taken_secrets(task) for task in tasks])

    async def _with_taken_secrets(self, task: Task) -> Task:
        if task.result is None or task.result_into is None or not task.after:
            return task
        try:
            taken = (await payload_with_results(self._store, task, self.with_secrets)).secrets
        except Fatal:  # they are gone: what was secret in them is not known any more
            paths: tuple[str, ...] = (WHOLE,) if task.secret else ()
        else:
            paths = secret_paths(decode(task.result), taken)
        return replace(task, secret=merged(task.secret, paths))

    def backoff(self, name: str, default: Delay) -> Delay:
        """Return the delay between attempts of a type, likewise; `default` if no program declares it."""
        if (spec := self.declared.find(name)) is not None:
            return spec.backoff
        published = self._published.get(name)
        return default if published is None else stored_backoff(published)
