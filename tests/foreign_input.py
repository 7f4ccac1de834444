"""Tasks and records that no client of ours makes, as JSON: what an attacker would send to a store."""

from typing import Any

from windlass._ids import new_id

LATE = "9999-12-31T23:59:59Z"
AT = "2026-01-01T00:00:00Z"


def task(**changed: Any) -> dict[str, Any]:
    """A task, but for these fields."""
    made = {"id": new_id(), "type": "t", "payload": {}, **changed}
    return {"root": made["id"], **made}


def step(**changed: Any) -> dict[str, Any]:
    return {"id": new_id(), "type": "t", "payload": {}, **changed}


TASKS: list[dict[str, Any]] = [
    {"next": "boo"}, {"next": {}}, {"next": [1]}, {"next": [{"id": "x"}]}, {"next": [step(type="a b")]},
    {"next": [step(delay=-1)]}, {"next": [step(timeout=0)]}, {"next": [step(payload=[])]},
    {"next": [step(next=[step(queue="\x1b[2J")])]}, {"next": [step(payload={"x": "y" * 3_300_000})]},
    {"next": [step(unique=[])]}, {"next": [step(expires=-1)]}, {"next": [step(secret=["\n"])]},
    {"next": [step(before=["x"])]}, {"next": [step(result_into="")]},
    {"payload": []}, {"payload": 1}, {"payload": None}, {"payload": {"x": "y" * 3_300_000}},
    {"payload": {"n": 1 << 70}},
    {"type": "a b"}, {"type": "x" * 129}, {"type": "\x1b[2J"}, {"type": "a\nb"}, {"queue": "a b"},
    {"queue": "q\r\nx"}, {"tenant": " "}, {"tenant": "\u202e"},
    {"timeout": -1}, {"timeout": 0}, {"delay": -1}, {"delay": -1e-6}, {"expires_in": 0}, {"expires_in": -5},
    {"expires_in": 5, "expires_at": AT}, {"idempotency_for": -1, "idempotency_key": "k"},
    {"idempotency_for": 1}, {"unique_for": 0}, {"unique_for": -1},
    {"idempotency_key": ""}, {"idempotency_key": "k" * 100_000}, {"idempotency_key": "a\nb"},
    {"idempotency_key": "\x1f" + "k" * 600}, {"idempotency_key": "\x1f\x1b"},
    {"idempotency_digest": "d" * 1000}, {"idempotency_digest": "\n"},
    {"fingerprint": ""}, {"fingerprint": "f" * 2000}, {"fingerprint": "\x1b"},
    {"result_into": ""}, {"result_into": "x" * 129}, {"result_into": "a\nb"},
    {"secret": ["re:(a*)*b"]}, {"secret": ["s" * 1000]}, {"secret": [str(n) for n in range(1001)]},
    {"secret": ["a\x1bb"]},
    {"trace": ""}, {"trace": "t"}, {"trace": "x" * 10_000},
    {"after": ["x" * 100]}, {"after": [new_id()] * 100_001}, {"before": ["x"]},
]  # fmt: skip


NOTICE = {"id": "x", "turn": "raised", "number": 1, "at": AT, "raised_at": AT}
RECORDS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "queue": ({"name": "q"}, [
        {"name": ""}, {"name": "a b"}, {"name": "\x1b"}, {"name": "x" * 129},
        {"ordering": {"ageing": 0}}, {"ordering": {"ageing": -1}}, {"ordering": {"ageing": 367 * 86400}},
        {"fairness": "round_robin", "weights": {"a b": 2}},
        {"windows": [{"opens": 0, "closes": 60, "zone": "Mars/Base"}]},
    ]),
    "limit": ({"name": "l", "running": 1}, [
        {"name": "a b"}, {"queue": "a b"}, {"by": "a b"}, {"tenant": "\n"}, {"by": "queue", "queue": "q"},
        {"type": ""},
    ]),
    "quota": ({"name": "acme", "tasks": 1}, [
        {"name": "a b"}, {"name": "\n"}, {"name": ""}, {"tasks": -1}, {"tasks": None}, {"bytes": 1 << 62},
    ]),
    "schedule": ({"name": "s", "type": "t", "cron": "0 3 * * *"}, [
        {"name": "a b"}, {"type": "a b"}, {"cron": "nonsense"}, {"cron": None}, {"cron": "0 3 30 2 *"},
        {"every": 60}, {"cron": None, "every": 0}, {"cron": None, "every": -5}, {"zone": "Mars/Base"},
        {"cron": "5m"},
        {"at_most": 0}, {"at_most": 10**9}, {"jitter": -1}, {"jitter": 10**6}, {"queue": "\n"},
        {"tenant": "a b"}, {"priority": 101}, {"max_attempts": 0}, {"timeout": -1}, {"expires": 0},
        {"unique_for": -1}, {"secret": ["\n"]}, {"payload": []}, {"payload": "x"}, {"next": "boo"},
        {"next": [step(type="a b")]}, {"since": LATE}, {"payload": {"x": "y" * 3_300_000}},
    ]),
    "alert": ({"name": "a"}, [
        {"name": "a b"}, {"type": "a b"}, {"queue": "\n"}, {"hold": -1}, {"window": 1e12},
        {"webhook": "file:///etc/passwd"}, {"webhook": "http://u:p@h/"}, {"webhook": "http://[bad/"},
        {"webhook": "x" * 3000}, {"webhook": "http://h/#f"}, {"webhook": ""},
    ]),
    "key": ({"name": "a" * 12, "label": "l", "hash": "0" * 64, "scopes": ["read"], "created_at": AT}, [
        {"name": "a b"}, {"name": "short"}, {"label": ""}, {"label": "l" * 101}, {"label": "a\nb"},
        {"hash": "x"}, {"scopes": []}, {"tenant": "a b"}, {"queues": []}, {"queues": ["a b"]}, {"rate": -1},
    ]),
    "login": (
        {"name": "0" * 64, "key": "a" * 12, "secret": "0" * 64, "created_at": AT, "expires_at": AT}, [
            {"name": "x"}, {"name": "A" * 64}, {"secret": "x"}, {"key": "a b"}, {"key": ""},
            {"expires_at": "2026-01-01T08:00:01Z"}, {"created_at": LATE, "expires_at": LATE},
        ],
    ),
    "type": ({"name": "t"}, [
        {"name": "a b"}, {"aliases": ["a b"]}, {"aliases": ["x"] * 1001}, {"defaults": {"queue": "a b"}},
        {"defaults": {"timeout": -1}}, {"defaults": {"priority": 500}}, {"defaults": {"max_attempts": 0}},
        {"defaults": {"expires": 0}}, {"defaults": {"unique": []}}, {"defaults": {"secret": ["\n"]}},
        {"defaults": {"unique_for": -1}}, {"delays": [1.0] * 1000}, {"backoff": {"x" * 500: 1.0}},
    ]),
    "history": ({"name": "10s/2026-11-16T08:30:00Z"}, [
        {"name": "x"}, {"name": "10s/2026-11-16T08:30:01Z"}, {"parts": ["x" * 50]}, {"series": [["q"]]},
        *({"series": [{"queue": "q", "type": "t", **wrong}]} for wrong in (
            {"type": "a\nb"}, {"type": "x" * 129}, {"completed": -1}, {"wait": [1, 2, 3]}, {"run": [999, 1]},
        )),
        {"series": [{"queue": "q", "type": "t"}] * 101},
    ]),
    "endpoint": (
        {"name": "0" * 16, "endpoint": "https://example.org", "tenant": "", "at": AT, "task_id": new_id()}, [
            {"name": "x"}, {"name": "A" * 16}, {"endpoint": "x" * 301}, {"endpoint": "a\nb"}, {"at": LATE},
            {"tenant": "a b"}, {"task_id": "x"},
        ],
    ),
    "tick": ({"name": "s", "at": AT}, [
        {"name": "a b"}, {"task_id": "x"}, {"at": LATE}, {"fired_at": LATE},
    ]),
    "alarm": ({"name": "a"}, [
        {"name": "a b"}, {"last": "x" * 1000}, {"last": "\n"}, {"number": -1}, {"told_at": LATE},
        {"unsent": [{**NOTICE, "id": "x\r\ny"}]}, {"unsent": [{**NOTICE, "tries": -1}]},
        {"unsent": [{**NOTICE, "letters": [{"id": "x", "type": "t", "queue": "q"}]}]},
        {"unsent": [NOTICE] * 21},
    ]),
    "archive": ({}, [
        {"name": "other"}, {"directory": "x" * 10_000}, {"directory": "a\x1bb"}, {"until": LATE},
    ]),
    "declaration": ({"name": "queue/q", "body": "{}"}, [
        {"name": "a b"}, {"name": "queue/" + "x" * 600}, {"body": "x" * 1_000_000}, {"body": "boo"},
    ]),
    "shards": (
        {"id": "m", "version": 1, "home": "a", "shards": ["a"], "routes": {"open": ["a"]}}, [
            {"name": "x"}, {"id": "x" * 300}, {"version": 0}, {"home": "b"}, {"shards": ["a"] * 65},
            {"shards": ["a", "b c"]}, {"routes": {"open": []}}, {"effective_at": LATE},
            {"routes": {"open": ["a"], "queues": {"a b": {"over": ["a"]}}}},
            {"routes": {"open": ["a"], "queues": {"q": {"over": []}}}}, {"former": [{"open": ["a"]}] * 17},
        ],
    ),
    "session": (
        {"id": "s", "worker": {"name": "w"}, "started_at": AT, "beat_at": AT, "expires_at": AT}, [{}]
    ),
    "audit": ({"id": "x", "at": AT, "who": "me", "why": "", "action": "forged"}, [{}]),
    "usage": ({"name": "u", "limit": "l", "value": "v", "running": 1}, [{}]),
}  # fmt: skip
