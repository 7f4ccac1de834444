"""The audit log: who did what, and why. (L2)"""

from typing import Annotated

from msgspec import Meta, Struct

from ..._documents.audit import AuditPage, audit_document
from ..._model.filter import Page
from ..._model.key import Scope
from ..input_fields import Limit
from ..operation import Answer, Asked, Operations
from ..task_query import checked_cursor, next_page

audit = Operations("audit log")


class Paging(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many at a time, and from where on."""

    limit: Limit = 100
    cursor: Annotated[str, Meta(description="The `cursor` of the page before.")] | None = None
    newest_first: bool = True


@audit("GET", "/audit", scope=Scope.READ, query=Paging, answer=AuditPage)
async def list_audit(asked: Asked[Paging, None]) -> Answer:
    """Read the audit log: who did what, and why; newest first unless asked otherwise."""
    query = asked.query
    page = Page(limit=query.limit, cursor=checked_cursor(query.cursor), newest_first=query.newest_first)
    found = await asked.service.app.operator.audit(page)
    value = AuditPage(items=[audit_document(entry) for entry in found.items], cursor=found.cursor)
    return Answer(value=value, headers=next_page(asked, found))
