"""The screens of the dashboard, one module each"""

from ..page import Pages
from .alerts import alerts
from .audit import audit
from .keys import keys
from .overview import overview
from .queue_settings import queue_settings
from .queues import queues
from .tasks import tasks

ALL: tuple[Pages, ...] = (
    overview,
    tasks,
    queues,
    queue_settings,
    alerts,
    audit,
    keys,
)
