"""Export of ended tasks with their attempts, as NDJSON; and the state of archiving."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import StreamingResponse

from ..._client.tasks.export import EndedTask, next_ones, parse_cursor
from ..._documents.archive import ArchiveDocument, archive_document
from ..._documents.tasks import EndedTaskDocument, ended_document
from ..._model.key import Scope
from ...errors import NotFound
from ..input_fields import RevealFlag
from ..operation import AnyRequest, ApiRequest, Operations
from ..task_query import TaskFilter, audit_reveal, filter_for, shown_size
from ..web.ndjson import NDJSON
from ..web.off_loop import each_off_loop
from .tasks import ReasonQuery

export = Operations("export")
archive = Operations("archive")

_EXPORT_BYTES = 5 << 20  # for one key, three exports are as many streams as it may have


class ExportQuery(TaskFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which ended tasks to export, and where to start."""

    after: (
        Annotated[
            str,
            Meta(
                max_length=100,
                description="Start after this task: its `finished_at` and `id`, separated by a comma.",
            ),
        ]
        | None
    ) = None
    reveal: RevealFlag = False


@export("GET", "/export", Scope.READ, bound=True, response=EndedTaskDocument, response_type=NDJSON)
async def export_tasks(request: ApiRequest[ExportQuery, None]) -> StreamingResponse:
    """Export ended tasks with their attempts, oldest end first, one on each line.

    A response that ends early is cut off without an end; continue it with `after`. Tasks that ended less than
    5 seconds ago are left for the next export.
    """
    if request.query.after is not None:
        parse_cursor(request.query.after)
    if request.query.reveal:
        request.caller.require_scope(Scope.REVEAL)
    request.begin_stream(_EXPORT_BYTES)
    where = filter_for(request.caller, request.query)
    exported = request.operator().export(where, after=request.query.after)
    first = await next_ones(exported)  # an error can be reported only before the response has begun
    return StreamingResponse(_lines(request, first, exported), media_type=NDJSON)


async def _lines(
    request: ApiRequest[ExportQuery, None], some: list[EndedTask], exported: AsyncIterator[EndedTask]
) -> AsyncIterator[bytes]:
    """Yield lines. An error aborts the connection, so that the client does not take it for the end."""
    while some:
        reveal = request.query.reveal
        if reveal:
            await audit_reveal(request, [one.task.id for one in some])
        build = partial(ended_document, may_see=request.caller.may_see, reveal=reveal)
        documents = await each_off_loop(some, lambda one: shown_size(one.task), build)
        yield b"".join(msgspec.json.encode(document) + b"\n" for document in documents)
        await request.recheck_key()
        some = await next_ones(exported)


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
