"""The columns of a task, in the one order in which rows.py reads them."""

_COMMON = (
    "id::text", "type", "payload", "root::text", "queue", "tenant", "priority", "boost", "attempt",
    "max_attempts", "fence", "run_at", "created_at", "claimed_at", "timeout", "session", "worker",
    "cancel_requested", "error_type", "error_message", "error_traceback", "idempotency_key", "fingerprint",
    "next", "after", "result_into", "secret", "trace", "enqueued_by",
)  # fmt: skip
_MORE = ("state", "finished_at", "duration", "progress_fraction", "progress_message", "result")
_NOT_IN_HISTORY = frozenset({"session"})


def _of(alias: str, names: tuple[str, ...]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)


LEASED = _of("t", _COMMON) + ", t.duration"
"""What a worker is told about a task that it has just claimed."""

TASK = _of("t", _COMMON + _MORE)
"""Everything about a task in the table of those that have not ended."""

HISTORY = ", ".join("NULL::text" if name in _NOT_IN_HISTORY else f"h.{name}" for name in _COMMON + _MORE)
"""The same about one in the history."""
