"""What programs use for logging and error reports. See docs/logging.md."""

from ._handler.failure import AttemptFailed
from ._observe.logs import JsonFormatter

__all__ = ["AttemptFailed", "JsonFormatter"]
