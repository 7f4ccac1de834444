"""The findings of a store's health check, by how bad they are."""

from .._store.protocol import Finding, Severity


def fine(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.OK, subject=subject, message=message)


def warning(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.WARNING, subject=subject, message=message)


def error(subject: str, message: str) -> Finding:
    return Finding(severity=Severity.ERROR, subject=subject, message=message)
