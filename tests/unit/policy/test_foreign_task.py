"""A task that another program made is checked by the rules of what our client makes."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.foreign_input import TASKS, task
from tests.unit.samples import INVALID, NEW_TASKS, NOW, SCHEDULE, new, step
from windlass._ids import new_id
from windlass._model.schedule import Overlap
from windlass._policy.input import keys
from windlass._policy.input.chain import encode_steps
from windlass._policy.input.foreign_task import MAX_SECRET, check_new_task, check_secret, check_steps
from windlass._policy.schedule import tick_task
from windlass.errors import InvalidOption


@pytest.mark.parametrize("number", range(len(TASKS)))
@pytest.mark.parametrize("reserved", [False, True])
def test_a_task_that_no_client_makes(number: int, *, reserved: bool) -> None:
    with pytest.raises(INVALID):
        check_new_task(NEW_TASKS.decode(msgspec.json.encode(task(**TASKS[number]))), reserved=reserved)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {
            "tenant": "acme",
            "delay": timedelta(0),
            "timeout": timedelta(seconds=1),
            "secret": ("card", "", "re:[0-9]{16}"),
        },
        {"idempotency_key": "k", "idempotency_digest": "0" * 64, "idempotency_for": timedelta(days=1)},
        {"fingerprint": "0" * 64, "unique_for": timedelta(hours=1), "expires_in": timedelta(hours=1)},
        {"fingerprint": "0" * 64 + '["a"]', "trace": f"00-{1:032x}-{1:016x}-01", "enqueued_by": "web"},
        {"after": (new_id(), new_id()), "result_into": "results"},
        {"before": (new_id(),)},
        {"next": encode_steps((step(next=(step(unique=("a",)),)), step(expires=timedelta(hours=1))))},
        {"payload": b'{"x":"%s"}' % (b"y" * 2_000_000)},
    ],
)
def test_a_task_of_a_client(changed: dict[str, Any]) -> None:
    check_new_task(new(**changed), reserved=False)


def test_the_task_of_a_tick_is_a_keepers() -> None:
    tick = tick_task(replace(SCHEDULE, overlap=Overlap.SKIP), NOW, new_id)
    check_new_task(tick, reserved=True)
    with pytest.raises(InvalidOption, match="idempotency key"):
        check_new_task(tick, reserved=False)
    with pytest.raises(InvalidOption, match="fingerprint"):
        check_new_task(replace(tick, idempotency_key=None, idempotency_for=None), reserved=False)


def test_run_at_or_delay() -> None:
    with pytest.raises(InvalidOption, match="run_at or delay"):
        check_new_task(new(run_at=NOW, delay=timedelta(1)), reserved=True)
    with pytest.raises(InvalidOption, match="after or before"):
        check_new_task(new(after=(new_id(),), before=(new_id(),)), reserved=True)
    with pytest.raises(InvalidOption, match="root"):
        check_new_task(new(root="x"), reserved=True)


def test_steps_that_nest_too_deeply() -> None:
    deep = b'[{"id":"i","type":"t","payload":{},"next":' * 2_000 + b"[]" + b"}]" * 2_000
    with pytest.raises(InvalidOption, match="nested too deeply"):
        check_steps(deep)


def test_too_many_secret_fields() -> None:
    check_secret(tuple(map(str, range(MAX_SECRET))))
    with pytest.raises(InvalidOption, match="at most"):
        check_secret(tuple(map(str, range(MAX_SECRET + 1))))


def test_a_reserved_key() -> None:
    keys.check_stored_key("k")
    keys.check_stored_key(keys.reserved_key("trigger:s", "k"))
