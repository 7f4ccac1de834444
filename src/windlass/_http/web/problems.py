"""Problem documents (RFC 9457): the one shape of every error response."""

import logging
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ..._store.outage import ShardUnavailable
from ...errors import StoreError, WindlassError

logger = logging.getLogger("windlass.http")

TYPE = "application/problem+json"

SAFE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Security headers on every response."""

_PROBLEMS: dict[int, tuple[str, tuple[str, ...]]] = {
    400: ("malformed request", ("malformed", "incomplete")),
    401: ("authentication required", ("unauthorized",)),
    403: ("forbidden", ("forbidden",)),
    404: ("not found", ("not-found",)),
    405: ("method not allowed", ("method-not-allowed",)),
    408: ("timed out", ("too-slow", "not-finished")),
    409: (
        "conflict",
        ("duplicate-task", "duplicate-key", "task-finished", "lease-lost", "conflict", "refused"),
    ),
    410: ("gone", ("session-lost",)),
    413: ("request too large", ("too-large",)),
    415: ("unsupported media type", ("unsupported-media-type",)),
    421: ("misdirected request", ("misdirected",)),
    422: (
        "invalid request",
        ("invalid-request", "invalid-payload", "invalid-option", "unknown-task-type", "idempotency-conflict"),
    ),
    429: ("too many requests", ("too-many-requests",)),
    431: ("request headers too large", ("head-too-large",)),
    500: ("internal error", ("internal", "store-error")),
    501: ("not supported", ("not-supported",)),
    503: ("temporarily unavailable; retry", ("busy", "store-unavailable", "schema-mismatch")),
    507: ("insufficient storage", ("quota-exceeded",)),
}
TITLES = {status: title for status, (title, _) in _PROBLEMS.items()}
CODES = {status: codes for status, (_, codes) in _PROBLEMS.items()}
"""The stable codes of problems, by status."""

_STATUSES = {"usage": 422, **{code: status for status, codes in CODES.items() for code in codes}}


class QuotaProblem(Struct, kw_only=True):
    """A tenant's quota, and what it has stored. null: without a bound."""

    tenant: str
    tasks: int | None
    bytes: int | None
    used_tasks: int
    used_bytes: int


class ProblemDocument(Struct, kw_only=True):
    """A problem (RFC 9457). `code` is stable for programs; `detail` is for people and may change."""

    type: Annotated[str, Meta(examples=["urn:windlass:problem:not-found"])]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    code: Annotated[
        str, Meta(extra_json_schema={"enum": sorted(code for some in CODES.values() for code in some)})
    ]
    standing: Annotated[str, Meta(description="The id of the existing task or key.")] | UnsetType = UNSET
    pointer: Annotated[str, Meta(description="A JSON pointer to the error (RFC 6901).")] | UnsetType = UNSET
    quota: QuotaProblem | UnsetType = UNSET


class Problem(Exception):
    """Raised to respond with a problem document, with the status of its code unless one is given."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status or _STATUSES.get(code, 500)
        self.code = code
        self.detail = detail
        self.headers = headers or {}
        self.more = more


def problem_from(error: WindlassError) -> Problem:
    """Return the problem of one of our errors."""
    more = {name: getattr(error, name) for name in ("standing", "pointer") if hasattr(error, name)}
    return Problem(error.code, str(error), **more)


def problem_for(error: Problem | WindlassError, request: Request) -> Problem:
    """Return the problem to respond with. Log a store error: its message may name hosts and files."""
    if isinstance(error, StoreError):
        logger.warning("%s %s: %s", request.method, request.url.path, error)
        hint = "retry" if error.transient else "see the server's log"
        what = f"shard {error.shard} of the store" if isinstance(error, ShardUnavailable) else "the store"
        return Problem(error.code, f"{what} failed; {hint}")
    return error if isinstance(error, Problem) else problem_from(error)


def problem_document(problem: Problem) -> ProblemDocument:
    """Build the document of a problem."""
    return ProblemDocument(
        type=f"urn:windlass:problem:{problem.code}",
        title=TITLES[problem.status],
        status=problem.status,
        detail=problem.detail,
        code=problem.code,
        **problem.more,
    )


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Build the response of a problem."""
    extra = {**problem.headers, **(headers or {})}
    if problem.status in (429, 503):
        extra.setdefault("Retry-After", "1")
    if problem.status == 401:
        extra.setdefault("WWW-Authenticate", 'Bearer realm="windlass"')
    return Response(msgspec.json.encode(problem_document(problem)), problem.status, extra, media_type=TYPE)
