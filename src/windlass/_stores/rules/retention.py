"""How long ended tasks are kept: as their queue says, else as their type says, else the default.

While archiving is on, none is deleted before it was archived.
"""

from collections.abc import Iterable
from datetime import datetime

from ..._model.options import DeclaredType, by_name_or_alias
from ..._model.queue import QueueSettings, Retention
from ..._model.record import Archive


class RetentionRules:
    """The retention of each queue and of each type that has one, and the default for all others."""

    def __init__(
        self, default: Retention, queues: Iterable[QueueSettings], types: Iterable[DeclaredType]
    ) -> None:
        self.default = default
        self.queues = {one.name: one.retention for one in queues if one.retention is not None}
        self.types = {
            name: one.retention
            for name, one in by_name_or_alias([*types]).items()
            if one.retention is not None
        }

    def of(self, queue: str, type: str) -> Retention:
        """Return the retention of a task by its queue and type."""
        return self.queues.get(queue) or self.types.get(type) or self.default


def archived(horizon: datetime | None, archive: Archive | None) -> datetime | None:
    """Lower the instant before which tasks may be deleted to that before which all were archived."""
    return horizon if horizon is None or archive is None else min(horizon, archive.until)
