"""Entries of the audit log."""

from msgspec import Struct

from .._model.record import Audit
from .fields import Id, Instant, build_document


class AuditDocument(Struct, kw_only=True):
    """Who did what, and why: to the task `task_id`, or to the record that `subject` names ("queue mail")."""

    id: Id
    at: Instant
    who: str
    why: str
    action: str
    task_id: Id | None
    subject: str
    detail: str


class AuditPage(Struct, kw_only=True):
    """One page of the audit log. `cursor` requests the next page; null on the last."""

    items: list[AuditDocument]
    cursor: str | None


def audit_document(entry: Audit) -> AuditDocument:
    """Build the document of an audit entry."""
    return build_document(AuditDocument, entry)
