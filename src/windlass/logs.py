"""What programs use for logging and error reports. See docs/logging.md."""

from ._handler.context import current_task
from ._handler.failure import AttemptFailed
from ._observe.logs import JsonFormatter, TaskFilter

__all__ = ["AttemptFailed", "JsonFormatter", "TaskFilter", "current_task"]
