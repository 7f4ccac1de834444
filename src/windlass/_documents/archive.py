"""The state of archiving."""

from msgspec import Struct

from .._model.record import Archive
from .fields import Instant, build_document


class ArchiveDocument(Struct, kw_only=True):
    """How far history is archived: every task that ended before `until` was written to a file.

    `directory` is on the host whose keeper wrote the last file.
    """

    until: Instant
    directory: str


def archive_document(archive: Archive) -> ArchiveDocument:
    """Build the document of the archive's state."""
    return build_document(ArchiveDocument, archive)
