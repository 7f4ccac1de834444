"""The audit log."""

from typing import Annotated

from msgspec import Meta, Struct

from ..._documents.audit import AuditPage, audit_document
from ..._model.filter import Page
from ..._model.key import Scope
from ..._model.record import AuditFilter
from ..input_fields import Limit
from ..operation import ApiRequest, ApiResponse, Operations
from ..task_query import checked_cursor, next_link

audit = Operations("audit log")


Part = Annotated[str, Meta(max_length=200)]


class AuditQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which entries, and the page to return."""

    who: Annotated[Part, Meta(description="Part of the name.")] = ""
    action: Annotated[Part, Meta(description="The action, such as `replay`.")] = ""
    subject: Annotated[Part, Meta(description="A task's id, or part of the subject.")] = ""
    limit: Limit = 100
    cursor: Annotated[str, Meta(description="The `cursor` of the previous page.")] | None = None
    newest_first: bool = True


@audit("GET", "/audit", Scope.READ)
async def list_audit(request: ApiRequest[AuditQuery, None]) -> ApiResponse[AuditPage]:
    """List the audit log: who did what, and why. Newest first unless `newest_first` is false.

    With `who`, `action` or `subject`, one request searches 5,000 entries: its page may have few items or none
    and still a `cursor`, with which the next request searches on.
    """
    query = request.query
    where = AuditFilter(who=query.who, action=query.action, subject=query.subject)
    page = Page(limit=query.limit, cursor=checked_cursor(query.cursor), newest_first=query.newest_first)
    found = await request.operator().audit(page, where)
    value = AuditPage(items=[audit_document(entry) for entry in found.items], cursor=found.cursor)
    return ApiResponse(value=value, headers=next_link(request, found))
