"""The screens of the dashboard, one module each"""

from ..page import Pages
from .admin.audit import audit
from .admin.health import health
from .admin.keys import keys
from .alerts import alerts
from .chains import chains
from .enqueue import enqueue
from .failures import failures
from .limits import limits
from .metrics import metrics
from .overview import overview
from .queues import queues
from .schedules import schedules
from .task import task
from .tasks import tasks
from .workers import workers

ALL: tuple[Pages, ...] = (
    overview,
    tasks,
    task,
    enqueue,
    chains,
    failures,
    queues,
    metrics,
    alerts,
    audit,
    keys,
    limits,
    schedules,
    workers,
    health,
)
