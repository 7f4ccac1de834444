"""The headers that operations heed and answer with, as the document describes them."""

from typing import Any

from ..task_input import MAX_REQUEST_KEY

HEADERS: dict[str, dict[str, Any]] = {
    "ETag": {
        "description": "Names this version: send it as `If-None-Match`.",
        "schema": {"type": "string"},
    },
    "Idempotency-Key": {
        "description": "Names this request, bare or in quotes: a repeat gets the same answer as the first.",
        "schema": {"type": "string", "minLength": 1, "maxLength": MAX_REQUEST_KEY},
        "example": "order-7731",
    },
    "Idempotency-Replayed": {
        "description": "`true` if this request was carried out before, and this is its answer again.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "If-None-Match": {
        "description": "The `ETag` of what you have: 304 if it is still the same.",
        "schema": {"type": "string"},
    },
    "Link": {
        "description": 'Leads to the next page (RFC 8288): `<…>; rel="next"`. None after the last.',
        "schema": {"type": "string"},
    },
    "Location": {
        "description": "Where the task is.",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    "RateLimit": {
        "description": 'What is left of the key\'s rate, and in how many seconds all of it: `"key";r=0;t=1`.',
        "schema": {"type": "string"},
    },
    "RateLimit-Policy": {
        "description": 'The key\'s rate: so many requests in so many seconds, `"key";q=100;w=1`.',
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "Try again after so many seconds.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "WWW-Authenticate": {
        "description": "How to show a key.",
        "schema": {"type": "string"},
    },
}
