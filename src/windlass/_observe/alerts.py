"""Alerts as structured log records."""

import logging

from ..alerts import AlertEvent, Turn

logger = logging.getLogger("windlass.alerts")

_LEVELS = {Turn.RAISED: logging.WARNING, Turn.REMINDED: logging.WARNING, Turn.CLEARED: logging.INFO}
_SAID = {Turn.RAISED: "is raised", Turn.REMINDED: "is still raised", Turn.CLEARED: "is cleared"}


def log_alert(event: AlertEvent) -> None:
    """Write it to the logger `windlass.alerts`; every field is an attribute of the record."""
    logger.log(
        _LEVELS[event.turn],
        "alert %s %s: %d dead letter%s%s (it takes %d)",
        event.alert,
        _SAID[event.turn],
        event.number,
        "" if event.number == 1 else "s",
        _described(event),
        event.count,
        extra={
            "event": f"alert_{event.turn}",
            "alert": event.alert,
            "number": event.number,
            "count": event.count,
            "window": None if event.window is None else event.window.total_seconds(),
            "task_type": event.type,
            "queue": event.queue,
            "raised_at": event.raised_at,
        },
    )


def _described(event: AlertEvent) -> str:
    """Of what, and within what."""
    of = f" of type {event.type}" if event.type else ""
    queue = f" in queue {event.queue}" if event.queue else ""
    window = f" within {event.window.total_seconds():g} s" if event.window else ""
    return f"{of}{queue}{window}"
