"""The state of archiving: show it, turn it off."""

from ..._documents.archive import ArchiveDocument, archive_document
from ..._model.key import Scope
from ...errors import NotFound
from ..operation import AnyRequest, ApiRequest, Operations
from .tasks import ReasonQuery

archive = Operations("archive")


@archive("GET", "/archive", Scope.READ, statuses=(404,))
async def get_archive(request: AnyRequest) -> ArchiveDocument:
    """Show how far history is archived. 404 if archiving is off."""
    found = await request.operator().archive()
    if found is None:
        raise NotFound("archiving is off; a keeper started with --archive DIR turns it on")
    return archive_document(found)


@archive("DELETE", "/archive", Scope.OPERATE, status=204, statuses=(404,))
async def stop_archiving(request: ApiRequest[ReasonQuery, None]) -> None:
    """Turn archiving off: ended tasks are pruned by their retention again, archived or not."""
    await request.operator(request.query.why).stop_archiving()
