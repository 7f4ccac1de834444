"""Which entries of the audit log a filter matches."""

from datetime import UTC, datetime

import pytest

from windlass._model.record import Audit, AuditFilter

AT = datetime(2026, 11, 16, tzinfo=UTC)
OF_QUEUE = Audit(id="1", at=AT, who="Ann@host", why="", action="pause", subject="queue mail")
OF_TASK = Audit(id="2", at=AT, who="key x (shop)", why="", action="replay", task_id="0199-abc")


@pytest.mark.parametrize(
    ("where", "matching"),
    [
        (AuditFilter(), [OF_QUEUE, OF_TASK]),
        (AuditFilter(who="ann"), [OF_QUEUE]),
        (AuditFilter(action="REPLAY"), [OF_TASK]),
        (AuditFilter(action="repl"), []),
        (AuditFilter(subject="Mail"), [OF_QUEUE]),
        (AuditFilter(subject="0199-ABC"), [OF_TASK]),
        (AuditFilter(subject="0199"), []),
        (AuditFilter(who="shop", subject="mail"), []),
    ],
)
def test_every_field_that_is_set_must_match(where: AuditFilter, matching: list[Audit]) -> None:
    assert [entry for entry in (OF_QUEUE, OF_TASK) if where.matches(entry)] == matching
