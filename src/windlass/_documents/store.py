"""The store itself: findings of `windlass check`, and migrations of its schema."""

from msgspec import Struct

from .._store.protocol import Finding, Migration, Phase, Severity
from .fields import build_document


class FindingDocument(Struct, kw_only=True):
    """One finding about settings, the store or its queues."""

    severity: Severity
    subject: str
    message: str


class MigrationDocument(Struct, kw_only=True):
    """One numbered migration of the store's schema."""

    number: int
    name: str
    applied: bool
    phase: Phase


def finding_document(finding: Finding) -> FindingDocument:
    """Build the document of a finding."""
    return build_document(FindingDocument, finding)


def migration_document(migration: Migration) -> MigrationDocument:
    """Build the document of a migration."""
    return build_document(MigrationDocument, migration)
