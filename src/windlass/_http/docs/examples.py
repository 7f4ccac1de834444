"""Examples of bodies and responses by operationId, and descriptions of headers, for the OpenAPI document.

Tests send every body to a server and decode every response.
"""

from typing import Any

from ..resources.work import ClaimedTask
from ..task_input import MAX_REQUEST_KEY

_TASK = "0199c3a2-7d10-7abc-8def-0123456789ab"
_NEXT = "0199c3a2-7d11-7004-a1b2-c3d4e5f60718"
_SESSION = "0199c3a9-0b44-7e15-9c0d-5a6b7c8d9e0f"
_SECOND = "0199c3a2-7d12-7b3c-8a90-112233445566"

BODIES: dict[str, Any] = {
    "enqueue": {
        "type": "report",
        "payload": {"month": "2026-07"},
        "queue": "reports",
        "tenant": "acme",
        "priority": "high",
        "delay": 60,
        "max_attempts": 5,
        "next": [{"type": "mail", "payload": {"to": "a@example.com"}, "result_into": "text"}],
    },
    "enqueue_batch": {
        "tasks": [
            {"type": "thumbnail", "payload": {"image": 1}},
            {"type": "thumbnail", "payload": {"image": 2}, "queue": "images"},
        ],
        "then": {"type": "album", "payload": {"album": 7}},
    },
    "enqueue_stream": {"type": "thumbnail", "payload": {"image": 3}, "idempotency_key": "thumbnail 3"},
    "replay_task": {"payload": {"month": "2026-08"}, "why": "the month was wrong"},
    "cancel_tasks": {"where": {"queue": ["reports"], "tenant": ["acme"]}, "why": "acme left"},
    "replay_dead": {"where": {"type": ["mail"], "error": "Timeout"}, "limit": 100, "spread": 600},
    "discard_dead": {"where": {"type": ["mail"]}, "dry_run": True, "why": "too late to be of use"},
    "set_queue": {"fairness": "round_robin", "weights": {"acme": 3}, "why": "acme pays for more"},
    "put_limit": {
        "queue": "mail",
        "by": "tenant",
        "running": 10,
        "rate": 5,
        "why": "the gateway's own limit",
    },
    "put_quota": {"tasks": 100000, "bytes": 2000000000, "why": "acme's plan"},
    "put_alert": {"type": "mail", "count": 10, "window": 300, "webhook": "https://hooks.example/windlass"},
    "change_limit": {"running": 20},
    "put_schedule": {
        "type": "report",
        "rule": "30 7 * * 1-5",
        "zone": "Europe/Berlin",
        "payload": {"month": "last"},
        "missed": "once",
    },
    "change_schedule": {"rule": "0 8 * * 1-5", "why": "after the import"},
    "create_key": {
        "label": "producers",
        "scopes": ["enqueue", "read"],
        "tenant": "acme",
        "expires_in": 7776000,
    },
    "rotate_key": {"overlap": 86400, "why": "every quarter"},
    "open_session": {"name": "worker-1", "queues": ["reports"], "slots": 4, "lease": 30, "version": "1.2"},
    "heartbeat": {
        "session": _SESSION,
        "worker": {"name": "worker-1", "queues": ["reports"], "slots": 4},
        "held": [{"id": _TASK, "fence": 1, "progress": {"fraction": 0.5, "message": "half of it"}}],
        "through": 1,
    },
    "claim": {"session": _SESSION, "queues": ["reports"], "limit": 4, "number": 1, "wait": 10},
    "settle": {
        "tasks": [
            {"id": _TASK, "fence": 1, "outcome": "returned", "result": "12 pages", "duration": 1.5},
            {
                "id": _NEXT,
                "fence": 3,
                "outcome": "failed",
                "error": {"type": "Timeout", "message": "no reply"},
                "retry_after": 60,
            },
        ]
    },
}

_TASK_DOCUMENT: dict[str, Any] = {
    "id": _TASK,
    "type": "report",
    "queue": "reports",
    "tenant": "acme",
    "state": "completed",
    "priority": 50,
    "attempt": 1,
    "max_attempts": 5,
    "run_at": "2026-08-01T06:00:00Z",
    "created_at": "2026-08-01T05:59:00Z",
    "claimed_at": "2026-08-01T06:00:00.012Z",
    "finished_at": "2026-08-01T06:00:01.512Z",
    "expires_at": None,
    "timeout": None,
    "worker": "worker-1",
    "duration": 1.5,
    "cancel_requested": False,
    "cancelled_by": None,
    "cancel_reason": None,
    "progress": {"fraction": 1, "message": "12 pages"},
    "payload": {"month": "2026-07"},
    "result": "12 pages",
    "error": None,
    "failure": None,
    "idempotency_key": None,
    "root": _TASK,
    "after": [],
    "result_into": None,
    "next": [],
    "secret": [],
    "trace": None,
    "enqueued_by": "key xR6EmtIocwvR (producers)",
}

_CLAIMED = {**_TASK_DOCUMENT, "fence": 1}

RESPONSES: dict[str, Any] = {
    "list_tasks": {"items": [_TASK_DOCUMENT], "cursor": _TASK},
    "get_task": _TASK_DOCUMENT,
    "enqueue": {"id": _TASK, "created": True, "following": [_NEXT]},
    "enqueue_batch": {
        "tasks": [
            {"id": _TASK, "created": True, "following": []},
            {"id": _SECOND, "created": True, "following": []},
            {"id": _NEXT, "created": True, "following": []},
        ]
    },
    "enqueue_stream": {"line": 1, "id": _TASK, "created": True, "problem": None},
    "cancel_task": {"id": _TASK, "state": "cancelled"},
    "replay_task": {"id": _TASK, "state": "ready"},
    "cancel_tasks": {"number": 12, "exact": True},
    "replay_dead": {"number": 100, "exact": True},
    "list_failures": {
        "items": [
            {
                "id": "5d1f0c9a7b3e2468",
                "type": "mail",
                "error": {"type": "Timeout", "message": "no reply after 30 s", "traceback": None},
                "task_id": _TASK,
                "number": 1742,
                "exact": True,
                "first_at": "2026-08-01T06:00:00Z",
                "last_at": "2026-08-01T06:41:12Z",
                "queues": ["mail"],
            }
        ]
    },
    "trigger_schedule": {"id": _TASK},
    "open_session": {"session": _SESSION, "lease": 30, "heartbeat": 10, "now": "2026-08-01T06:00:00Z"},
    "heartbeat": {"lost": [], "cancel": [_TASK]},
    "claim": {"tasks": [{name: _CLAIMED[name] for name in ClaimedTask.__struct_fields__}]},
    "settle": {"tasks": [{"id": _TASK, "receipt": "applied"}, {"id": _NEXT, "receipt": "lost"}]},
}


def _header(description: str, *, type: str = "string", **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": {"type": type, **schema}}


HEADERS: dict[str, dict[str, Any]] = {
    "ETag": _header("Identifies this version; send it as `If-None-Match`."),
    "Idempotency-Key": {
        **_header(
            "Identifies this request, bare or in quotes; a repeat gets the response of the first.",
            minLength=1,
            maxLength=MAX_REQUEST_KEY,
        ),
        "example": "order-7731",
    },
    "Idempotency-Replayed": _header(
        "`true` if the request is a repeat and this is the response of the first.", enum=["true"]
    ),
    "If-None-Match": _header("The `ETag` of your copy; 304 if it is current."),
    "Link": _header('The next page (RFC 8288): `<…>; rel="next"`. Absent on the last page.'),
    "Location": _header("The path of the task.", format="uri-reference"),
    "RateLimit": _header(
        'What is left of each rate, and the seconds until the full quota is back: `"requests";r=0;t=1`.'
    ),
    "RateLimit-Policy": _header(
        "The rates of the key (requests, tasks, bytes) as quota and window in seconds: "
        '`"requests";q=100;w=1`.'
    ),
    "Retry-After": _header("Seconds to wait before a retry.", type="integer", minimum=0),
    "WWW-Authenticate": _header("The authentication scheme: Bearer."),
}
