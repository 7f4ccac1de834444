"""Publish a program's task types to the store, for keepers and senders that do not have their handlers."""

import asyncio
import logging
from collections.abc import Iterable

from .._handler.spec import HandlerSpec
from .._model.options import DeclaredType
from .._model.queue import Retention
from .._policy.input.quote import printable
from .._policy.task_type import changes, declared_type
from .._store.protocol import Store
from .records import list_records

logger = logging.getLogger("windlass.app")


async def publish_types(store: Store, types: Iterable[HandlerSpec], retention: Retention | None) -> None:
    """Store the types that are new or have changed, and warn of those that were declared otherwise.

    The last program to publish a type wins. Types of other programs, and removed ones, stay as they are:
    their tasks may outlive them.
    """
    published = {one.name: one for one in await list_records(store, DeclaredType)}
    declared = [
        declared_type(one.name, one.defaults, one.backoff, aliases=one.aliases, retention=retention)
        for one in types
    ]
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
