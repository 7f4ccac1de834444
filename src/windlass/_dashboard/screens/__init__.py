"""The screens of the dashboard, one module each"""

from ..page import Pages
from .overview import overview
from .queues import queues
from .tasks import tasks

ALL: tuple[Pages, ...] = (overview, tasks, queues)
