"""Types to annotate with: what the methods of App, Client, Operator and their kin take and return.

from windlass.types import Attempt

attempts: Sequence[Attempt] = app.sync_operator.attempts(task_id)
"""

from .._client.alerts import Alerts, AlertStatus
from .._client.encryption import Encryption, Rotation
from .._client.endpoints import Endpoints
from .._client.keys import KeyOptions, Keys, NewKey
from .._client.limits import Limits
from .._client.quotas import Quotas
from .._client.schedules import PastTick, Schedules, ScheduleStatus
from .._client.sync.records import (
    SyncAlerts,
    SyncEncryption,
    SyncEndpoints,
    SyncKeys,
    SyncLimits,
    SyncQuotas,
    SyncSchedules,
)
from .._client.tasks.export import EndedTask
from .._handler.context import Once
from .._model.alert import Alert, AlertNotice, AlertState, DeadLetter
from .._model.attempt import Attempt
from .._model.filter import Count, Failure, Slice
from .._model.key import ApiKey, FormerSecret, Login, Role, Scope
from .._model.limit import Limit, Quota, Usage, Use
from .._model.options import DeclaredType, Defaults, Options
from .._model.queue import Fairness, Level, Ordering, QueueSettings, Window
from .._model.record import (
    Archive,
    Audit,
    AuditFilter,
    DisabledEndpoint,
    HistoryBucket,
    HistorySeries,
    Session,
    StuckHandler,
)
from .._model.record import Worker as WorkerRecord
from .._model.schedule import Missed, Overlap, Schedule, ScheduleOptions, ScheduleTiming, Tick
from .._model.task import Enqueued, Error, Predecessor, Progress
from .._policy.alerts import AlertOptions
from .._policy.history.buckets import Resolution
from .._policy.history.points import History, HistoryPoint, HistoryTotal, Quantiles
from .._policy.order.limit_options import LimitChanges, LimitOptions
from .._policy.order.queue_options import QueueChanges
from .._store.protocol import Durability, Finding, Migration, Phase, Promise, Severity, Transaction
from .._webhook import WebhookResponse
from ..tasktype import Prepared

__all__ = [
    "Alert",
    "AlertNotice",
    "AlertOptions",
    "AlertState",
    "AlertStatus",
    "Alerts",
    "ApiKey",
    "Archive",
    "Attempt",
    "Audit",
    "AuditFilter",
    "Count",
    "DeadLetter",
    "DeclaredType",
    "Defaults",
    "DisabledEndpoint",
    "Durability",
    "Encryption",
    "EndedTask",
    "Endpoints",
    "Enqueued",
    "Error",
    "Failure",
    "Fairness",
    "Finding",
    "FormerSecret",
    "History",
    "HistoryBucket",
    "HistoryPoint",
    "HistorySeries",
    "HistoryTotal",
    "KeyOptions",
    "Keys",
    "Level",
    "Limit",
    "LimitChanges",
    "LimitOptions",
    "Limits",
    "Login",
    "Migration",
    "Missed",
    "NewKey",
    "Once",
    "Options",
    "Ordering",
    "Overlap",
    "PastTick",
    "Phase",
    "Predecessor",
    "Prepared",
    "Progress",
    "Promise",
    "Quantiles",
    "QueueChanges",
    "QueueSettings",
    "Quota",
    "Quotas",
    "Resolution",
    "Role",
    "Rotation",
    "Schedule",
    "ScheduleOptions",
    "ScheduleStatus",
    "ScheduleTiming",
    "Schedules",
    "Scope",
    "Session",
    "Severity",
    "Slice",
    "StuckHandler",
    "SyncAlerts",
    "SyncEncryption",
    "SyncEndpoints",
    "SyncKeys",
    "SyncLimits",
    "SyncQuotas",
    "SyncSchedules",
    "Tick",
    "Transaction",
    "Usage",
    "Use",
    "WebhookResponse",
    "Window",
    "WorkerRecord",
]
