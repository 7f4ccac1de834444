"""Say when a program ends how many of its tasks had not ended, if they were in its memory only."""

import atexit
import logging
import os
import sys
import weakref

from ..._model.state import ENDED
from .tables import Tables

logger = logging.getLogger("windlass.store")

_TESTS = "windlass.testing"  # imported by the harness, and in every run of pytest as a plugin


def report_at_exit(tables: Tables) -> None:
    """Log a warning when this process ends if tasks of these tables are lost with it; not in a test run."""
    _watched.add(tables)


def _report() -> None:
    if _TESTS in sys.modules:
        return
    lost = sum(task.state not in ENDED for tables in _watched for task in tables.tasks.values())
    if lost:
        logger.warning(
            "lost %d %s that had not ended: memory:// keeps tasks in the memory of this process, which ends. "
            "Run a worker in it, as with `async with app.worker():`, or use a store for several processes, "
            "such as sqlite:///windlass.db",
            lost,
            "task" if lost == 1 else "tasks",
        )


_watched: "weakref.WeakSet[Tables]" = weakref.WeakSet()
atexit.register(_report)
os.register_at_fork(after_in_child=_watched.clear)  # they are the parent's
