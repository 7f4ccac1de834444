"""The audit log."""

from typing import Annotated

from msgspec import Meta, Struct

from ..._documents.audit import AuditPage, audit_document
from ..._model.filter import Page
from ..._model.key import Scope
from ..input_fields import Limit
from ..operation import ApiRequest, ApiResponse, Operations
from ..task_query import checked_cursor, next_link

audit = Operations("audit log")


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page to return."""

    limit: Limit = 100
    cursor: Annotated[str, Meta(description="The `cursor` of the previous page.")] | None = None
    newest_first: bool = True


@audit("GET", "/audit", Scope.READ)
async def list_audit(request: ApiRequest[PageQuery, None]) -> ApiResponse[AuditPage]:
    """List the audit log: who did what, and why. Newest first unless `newest_first` is false."""
    query = request.query
    page = Page(limit=query.limit, cursor=checked_cursor(query.cursor), newest_first=query.newest_first)
    found = await request.operator().audit(page)
    value = AuditPage(items=[audit_document(entry) for entry in found.items], cursor=found.cursor)
    return ApiResponse(value=value, headers=next_link(request, found))
