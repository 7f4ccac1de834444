"""Who works, who did what, and who may: workers, the audit log, keys. (I3, L2)"""

from typing import Annotated

from msgspec import Meta, Struct

from ..._model.filter import Page
from ..._model.key import Scope
from ..._model.record import Session
from ..._policy import bearer
from ..._policy.options import MAX_DELAY
from ..documents import Id, Instant, Limit, Name, Why, like
from ..finding import checked_cursor, next_page
from ..operation import Answer, Asked, NoQuery, Operations
from .tasks import Reason

people = Operations("workers, audit and keys")


Rate = Annotated[float, Meta(ge=bearer.SLOWEST, le=bearer.FASTEST, description="Requests a second.")]


class WorkerDocument(Struct, kw_only=True):
    """A worker's session. Not `alive`, it has been silent for too long: its tasks go to others."""

    session: str
    name: str
    host: str
    pid: int
    queues: list[str]
    slots: int
    busy: int
    version: str
    alive: bool
    keeper: bool
    started_at: Instant
    beat_at: Instant
    expires_at: Instant


class WorkerList(Struct, kw_only=True):
    """The sessions that the store knows."""

    items: list[WorkerDocument]


class AuditDocument(Struct, kw_only=True):
    """Who did what to what, and why: to a task, or to what `subject` names."""

    id: Id
    at: Instant
    who: str
    why: str
    action: str
    task_id: Id | None
    subject: str
    detail: str


class AuditPage(Struct, kw_only=True):
    """A part of the audit log. `cursor` asks for the next; null after the last."""

    items: list[AuditDocument]
    cursor: str | None


class Paging(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many at a time, and from where on."""

    limit: Limit = 100
    cursor: Annotated[str, Meta(description="The `cursor` of the page before.")] | None = None
    newest_first: bool = True


class KeySaid(Struct, kw_only=True, forbid_unknown_fields=True):
    """A key to make: whose it is, what it allows, and what it is bound to."""

    label: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=5)]
    tenant: Name | None = None
    queues: Annotated[list[Name], Meta(min_length=1, max_length=100)] | None = None
    expires_in: Annotated[float, Meta(gt=0, le=MAX_DELAY.total_seconds())] | None = None
    rate: Rate | None = None
    why: Why = ""


class KeyDocument(Struct, kw_only=True):
    """A key, by its id. What its holder sends is shown once, when it is made."""

    id: str
    label: str
    scopes: list[Scope]
    tenant: str | None
    queues: list[str] | None
    rate: float | None
    created_at: Instant
    expires_at: Instant | None


class NewKeyDocument(KeyDocument, kw_only=True):
    """A key that was just made. `key` is shown this once: keep it where secrets are kept."""

    key: str


class KeyList(Struct, kw_only=True):
    """Every key there is."""

    items: list[KeyDocument]


@people("GET", "/workers", scope=Scope.READ, answer=WorkerList)
async def list_workers(asked: Asked[NoQuery, None]) -> WorkerList:
    """List the workers, and how busy each is."""
    operator = asked.service.app.operator
    now = await operator.now()
    return WorkerList(items=[_worker(one, alive=one.expires_at > now) for one in await operator.workers()])


@people("GET", "/audit", scope=Scope.READ, query=Paging, answer=AuditPage)
async def list_audit(asked: Asked[Paging, None]) -> Answer:
    """Read the audit log: who did what, and why; newest first unless asked otherwise."""
    query = asked.query
    page = Page(limit=query.limit, cursor=checked_cursor(query.cursor), newest_first=query.newest_first)
    found = await asked.service.app.operator.audit(page)
    value = AuditPage(items=[like(AuditDocument, line) for line in found.items], cursor=found.cursor)
    return Answer(value=value, headers=next_page(asked, found))


@people("GET", "/keys", scope=Scope.ADMIN, answer=KeyList)
async def list_keys(asked: Asked[NoQuery, None]) -> KeyList:
    """List keys: their ids, never their secrets."""
    return KeyList(
        items=[like(KeyDocument, key, id=key.name) for key in await asked.service.app.operator.keys.list()]
    )


@people("POST", "/keys", scope=Scope.ADMIN, body=KeySaid, answer=NewKeyDocument, status=201)
async def create_key(asked: Asked[NoQuery, KeySaid]) -> NewKeyDocument:
    """Make a key. What its holder sends is in the answer, and nowhere else.

    Every server knows it within a second.
    """
    body = asked.body
    made = await asked.operator(body.why).keys.create(
        body.label,
        scopes=body.scopes,
        tenant=body.tenant,
        queues=body.queues,
        expires_in=body.expires_in,
        rate=body.rate,
    )
    return like(NewKeyDocument, made.key, id=made.key.name, key=made.text)


@people("DELETE", "/keys/{key}", scope=Scope.ADMIN, query=Reason, status=204, answers=(404,))
async def revoke_key(asked: Asked[Reason, None]) -> None:
    """Take a key back: every server refuses it within a second."""
    await asked.operator(asked.query.why).keys.revoke(asked.path("key"))


def _worker(session: Session, *, alive: bool) -> WorkerDocument:
    return like(
        WorkerDocument, session.worker, session, session=session.id, alive=alive, keeper=session.is_keeper
    )
