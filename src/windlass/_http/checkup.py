"""The check of a store, as `windlass check` makes it: each part bounded in time, all of it shared."""

import asyncio
import platform
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from importlib import metadata
from time import monotonic
from typing import TYPE_CHECKING

from .._documents.check import CheckDocument
from .._observe.damage import damaged_tasks
from .._observe.health import check_durability, check_queues, check_quotas, check_signatures
from .._store.protocol import Finding, Severity
from ..errors import StoreError

if TYPE_CHECKING:
    from .service import Service

MAX_AGE = timedelta(minutes=1)
"""Maximum age of a check; one serves all requests within it, as it may keep a SQLite file busy for 2 s."""

PART_SECONDS = 5.0
"""Time for one part of a check."""


async def check_service(service: "Service") -> CheckDocument:
    """Check the store of a server; what cannot be checked in time is a finding."""
    began = monotonic()
    store, operator = service.store, service.operator
    await store.open()
    parts = {
        "store": operator.check(),
        "encryption": operator.encryption.check(),
        "tasks": damaged_tasks(store),
        "queues": _queues(service),
        "quotas": _quotas(service),
        "alerts": _signatures(service),
    }
    found = await asyncio.gather(*(_in_time(subject, part) for subject, part in parts.items()))
    return CheckDocument(
        at=await store.now(),
        seconds=monotonic() - began,
        durability=store.promise.durability,
        why=store.promise.why,
        version=metadata.version("windlass"),
        python=platform.python_version(),
        findings=[check_durability(store.promise), *(finding for part in found for finding in part)],
        migrations=[*await operator.migrations()],
    )


async def _in_time(subject: str, part: Awaitable[Sequence[Finding]]) -> Sequence[Finding]:
    """Return the findings of a part; or one that tells why there are none."""
    try:
        async with asyncio.timeout(PART_SECONDS):
            return await part
    except TimeoutError:
        message = f"could not be checked within {PART_SECONDS:g} s; run `windlass check`"
        return [Finding(severity=Severity.WARNING, subject=subject, message=message)]
    except StoreError as error:
        message = f"could not be checked: {error}"
        return [Finding(severity=Severity.ERROR, subject=subject, message=message)]


async def _queues(service: "Service") -> Sequence[Finding]:
    return check_queues(await service.overviews.get())


async def _quotas(service: "Service") -> Sequence[Finding]:
    use = service.store.use
    await use.refresh()
    return check_quotas(use.quotas, use.all())


async def _signatures(service: "Service") -> Sequence[Finding]:
    if service.app.alert_notifier.secret is not None:
        return ()
    return check_signatures([status.alert for status in await service.operator.alerts.list()])
