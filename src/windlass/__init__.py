"""windlass: a durable task queue for Python. It keeps every task until it has ended, whatever crashes.

    from windlass import App

    app = App("sqlite:///windlass.db")

    @app.task
    def greet(name: str) -> None:
        print(f"hello {name}")

    greet.enqueue(name="Ada")

`windlass worker module:app` runs what is enqueued. Start with docs/quickstart.md.
"""

from ._client.client import Client, Handle
from ._client.operator import Operator
from ._client.sync.client import SyncClient, SyncHandle
from ._client.sync.operator import SyncOperator
from ._handler.around import CallNext
from ._handler.context import INJECTED, Context
from ._handler.dependencies import Depends
from ._handler.signature import RESULT
from ._model.filter import By, Dimension, Filter, Page
from ._model.queue import Retention
from ._model.state import State
from ._model.task import Progress, Task
from ._policy.backoff import Backoff
from ._policy.input.chain import Step, chain
from ._worker.settings import WorkerSettings
from ._worker.worker import Worker
from .app import App
from .errors import (
    DuplicateTask,
    IdempotencyConflict,
    InvalidOption,
    InvalidPayload,
    NotFinished,
    NotFound,
    Refused,
    StoreError,
    StoreUnavailable,
    TaskCancelled,
    TaskDead,
    TaskFinished,
    UsageError,
    WindlassError,
)
from .signals import Fatal, Retry, Snooze
from .tasktype import TaskType

__all__ = [
    "App",
    "Backoff",
    "By",
    "CallNext",
    "Client",
    "Context",
    "Depends",
    "Dimension",
    "DuplicateTask",
    "Fatal",
    "Filter",
    "Handle",
    "INJECTED",
    "IdempotencyConflict",
    "InvalidOption",
    "InvalidPayload",
    "NotFinished",
    "NotFound",
    "Operator",
    "Page",
    "Progress",
    "RESULT",
    "Refused",
    "Retention",
    "Retry",
    "Snooze",
    "State",
    "Step",
    "StoreError",
    "StoreUnavailable",
    "SyncClient",
    "SyncHandle",
    "SyncOperator",
    "Task",
    "TaskCancelled",
    "TaskDead",
    "TaskFinished",
    "TaskType",
    "UsageError",
    "WindlassError",
    "Worker",
    "WorkerSettings",
    "chain",
]
