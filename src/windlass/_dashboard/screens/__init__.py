"""The screens of the dashboard, one module each"""

from ..page import Pages
from .overview import overview
from .queue_settings import queue_settings
from .queues import queues
from .tasks import tasks

ALL: tuple[Pages, ...] = (overview, tasks, queues, queue_settings)
