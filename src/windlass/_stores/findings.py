"""The findings of a store's health check, by how bad they are."""

from collections.abc import Sequence

from .._store.protocol import Finding, Severity

_EXAMPLES = 5


def records(unreadable: Sequence[str]) -> Finding:
    """Report records that cannot be read, which are ignored."""
    if not unreadable:
        return fine("records", "all can be read")
    some = f"{', '.join(unreadable[:_EXAMPLES])}{', …' if len(unreadable) > _EXAMPLES else ''}"
    return error(
        "records",
        f"{len(unreadable):,} cannot be read and are ignored: {some}; set them again, or remove them",
    )


def fine(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.OK, subject=subject, message=message)


def warning(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.WARNING, subject=subject, message=message)


def error(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.ERROR, subject=subject, message=message)
