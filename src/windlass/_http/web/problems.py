"""Errors as problems (RFC 9457): one shape for everything that goes wrong."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response

from ...errors import (
    DuplicateTask,
    IdempotencyConflict,
    InvalidPayload,
    LeaseLost,
    NotFinished,
    NotFound,
    NotSupported,
    Refused,
    SchemaMismatch,
    SessionLost,
    StoreError,
    StoreUnavailable,
    TaskFinished,
    UsageError,
    WindlassError,
)

TYPE = "application/problem+json"

SAFE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""On every answer: they keep a browser from making more of it than it is."""

_STATUS: tuple[tuple[type[WindlassError], int], ...] = (
    (IdempotencyConflict, 422),
    (NotSupported, 501),
    (UsageError, 422),
    (DuplicateTask, 409),
    (TaskFinished, 409),
    (LeaseLost, 409),
    (SessionLost, 410),
    (Refused, 409),
    (NotFound, 404),
    (NotFinished, 408),
    (StoreUnavailable, 503),
    (SchemaMismatch, 503),
    (StoreError, 500),
    (WindlassError, 500),
)

TITLES = {
    400: "the request is malformed",
    401: "a key is needed",
    403: "the key does not allow this",
    404: "there is no such thing here",
    405: "the method is not allowed here",
    408: "it took too long",
    409: "not as things stand",
    410: "it is gone",
    411: "the length of the body must be said",
    413: "the request is too large",
    415: "the body must be JSON",
    422: "the request is understood, and wrong",
    429: "too many requests",
    431: "the headers are too large",
    500: "the server failed",
    501: "not supported here",
    503: "not now: try again",
}

CODES: dict[int, tuple[str, ...]] = {
    400: ("malformed", "incomplete"),
    401: ("unauthorized",),
    403: ("forbidden",),
    404: ("not-found",),
    405: ("method-not-allowed",),
    408: ("too-slow", "not-finished"),
    409: ("duplicate-task", "task-finished", "lease-lost", "refused"),
    410: ("session-lost",),
    413: ("too-large",),
    415: ("unsupported-media-type",),
    422: (
        "invalid-request",
        "invalid-payload",
        "invalid-option",
        "unknown-task-type",
        "idempotency-conflict",
    ),
    429: ("too-many-requests",),
    431: ("head-too-large",),
    500: ("internal", "store-error"),
    501: ("not-supported",),
    503: ("busy", "store-unavailable", "schema-mismatch"),
}
"""What can go wrong, by status. Programs may rely on these words."""


class ProblemDocument(Struct, kw_only=True):
    """What went wrong (RFC 9457). `code` is stable, `detail` is for people."""

    type: Annotated[str, Meta(examples=["urn:windlass:problem:not-found"])]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    code: Annotated[
        str, Meta(extra_json_schema={"enum": sorted(code for some in CODES.values() for code in some)})
    ]
    standing: Annotated[str, Meta(description="The task that stands already.")] | UnsetType = UNSET
    pointer: Annotated[str, Meta(description="Where in the body it is (RFC 6901).")] | UnsetType = UNSET


class Problem(Exception):
    """A problem with a status, a stable code and words for a person."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.headers = headers or {}
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers or {}
        self.more = more


def problem_of(error: WindlassError) -> Problem:
    """What one of our errors is over HTTP."""
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    more: dict[str, Any] = {}
    if isinstance(error, DuplicateTask | IdempotencyConflict):
        more["standing"] = error.standing
    if isinstance(error, InvalidPayload):
        more["pointer"] = error.pointer
    return Problem(status, error.code, str(error), **more)


def hidden(error: StoreError) -> Problem:
    """What a failure of the store is to who asked: whether to try again, and no more."""
    known = problem_of(error)
    again = "try again" if error.transient else "the server's log says more"
    return Problem(known.status, known.code, f"the store cannot do this now; {again}")


def document(problem: Problem) -> ProblemDocument:
    """A problem as JSON."""
    return ProblemDocument(
        type=f"urn:windlass:problem:{problem.code}",
        title=TITLES.get(problem.status, "something went wrong"),
        status=problem.status,
        detail=problem.detail,
        code=problem.code,
        **problem.more,
    )


def answer(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem as a response."""
    extra = {**problem.headers, **(headers or {})}
    if problem.status in (429, 503):
        extra.setdefault("Retry-After", "1")
    if problem.status == 401:
        extra.setdefault("WWW-Authenticate", 'Bearer realm="windlass"')
    return Response(msgspec.json.encode(document(problem)), problem.status, extra, media_type=TYPE)
