"""What programs use for logging and error reports. See docs/logging.md."""

from ._handler.context import current_task
from ._handler.failure import AttemptFailed
from ._observe.log_secrets import SecretFilter
from ._observe.logs import JsonFormatter, TaskFilter

__all__ = ["AttemptFailed", "JsonFormatter", "SecretFilter", "TaskFilter", "current_task"]
