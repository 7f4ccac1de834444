"""What a record shows by accident: in logs, assertions, error trackers and tracebacks with local variables.

The rule is in `_model/brief.py`: the repr of a record has names, numbers and instants, and no content.
"""

import re
from typing import Any

import pytest
from msgspec import Struct
from rich.pretty import pretty_repr

import windlass
from tests.security.record_walk import CANARY, SHAPES, fields, filled, records
from windlass._model.brief import NAMES, Brief

RECORDS = records()
PUBLIC = {getattr(windlass, name) for name in windlass.__all__}
CONTENT = frozenset((
    "args", "argv", "body", "cancel_reason", "content", "creds", "document", "dsn", "environment", "env",
    "fingerprint", "flags", "handlers", "hash", "headers", "html", "idempotency_digest", "idempotency_key",
    "mailgun", "message", "next", "notes", "options", "password", "payload", "raw", "record", "result",
    "secret", "secrets", "sendgrid", "smtp", "stderr", "stdout", "store", "taken", "text", "traceback", "url",
    "username", "value", "values", "webhook",
))  # fmt: skip
"""Names of fields that hold what a task, a request or a setting does, in records that are not public."""
HOLDS_TEXT = re.compile(r"^(?!.*Callable).*\b(str|bytes|Raw|Any|object)\b|^$")  # the type of a field
OURS = {
    ("Asset", "content"), ("Cancellation", "message"), ("Finding", "message"), ("Operation", "body"),
    ("Script", "text"), ("Trouble", "text"), ("TypeDocument", "secret"), ("Wanted", "payload"),
}  # fmt: skip
"""Fields with such a name that hold texts of windlass itself, types, or what a test expects."""


def may_show(record: type[Any]) -> set[str]:
    """The fields of a record whose text its repr may have."""
    texts = {name for name, kind in fields(record).items() if HOLDS_TEXT.search(kind)}
    public = record in PUBLIC or record.__module__.startswith("windlass._model.")
    hidden = texts - NAMES if public else texts & CONTENT
    return {name for name in fields(record) if name not in hidden or (record.__name__, name) in OURS}


def shown(record: type[Any], shape: str) -> set[str]:
    """The fields whose text occurs in what a record shows of itself."""
    made = filled(record, lambda name: SHAPES[shape](f"{CANARY}-{name}-"))
    texts = repr(made) + pretty_repr(made)
    return {name for name in fields(record) if f"{CANARY}-{name}-" in texts}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_record_shows_its_content(shape: str) -> None:
    found = {one: shown(one, shape) - may_show(one) for one in RECORDS}
    leaking = {f"{one.__module__}.{one.__name__}": names for one, names in found.items() if names}

    assert leaking == {}, "derive these from Brief, of windlass._model.brief"


def test_there_are_many_records_and_what_has_no_rule_is_found() -> None:
    class Plain(Struct):
        id: str
        payload: bytes

    class Hidden(Brief, Plain): ...

    assert len(RECORDS) * len(SHAPES) > 2_000
    assert shown(windlass.Task, "text") == {"id", "type", "queue", "tenant", "state"}
    for shape in SHAPES.keys() - {"raw JSON"}:  # of which no repr has the text
        assert shown(Plain, shape) == {"id", "payload"}
        assert "payload" not in shown(Hidden, shape)
