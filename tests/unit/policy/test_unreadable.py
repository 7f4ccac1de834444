"""Stored JSON that cannot be read is shown as such, and hides nothing else."""

import pytest
from msgspec import Raw

from tests.unit.samples import running
from windlass._ids import new_id
from windlass._model.limit import Limit
from windlass._model.outcome import Returned
from windlass._model.task import DAMAGED, Error
from windlass._model.verdict import Bury
from windlass._policy.backoff import Backoff
from windlass._policy.input.chain import Step, encode_steps, readable_steps
from windlass._policy.input.unreadable import UNREADABLE, is_object, readable_json, shown_error
from windlass._policy.order.limits import Subject, permits_of
from windlass._policy.secrets.mask import mask_of
from windlass._policy.secrets.shown import masked_task, with_type_secrets
from windlass._policy.verdict import decide

BAD = [b"boo", b"", b"\xff", b'"\xff"', b"[" * 5_000]


@pytest.mark.parametrize("data", BAD)
def test_it_is_shown_as_such(data: bytes) -> None:
    assert readable_json(data) == UNREADABLE
    assert not is_object(data)


def test_what_can_be_read() -> None:
    assert readable_json(b'{"a":1}') == {"a": 1}
    assert is_object(b"{}")
    assert not is_object(b"[]")
    assert shown_error(running(payload=b"{}", result=b"1")) is None


@pytest.mark.parametrize("data", BAD)
def test_the_error_says_what_is_damaged(data: bytes) -> None:
    error = shown_error(running(payload=data, result=data, next=b"boo"))
    assert error is not None
    assert error.type == DAMAGED
    assert error.message.startswith(
        "stored damaged: the payload is not a JSON object; the result is not JSON"
    )
    assert "invalid steps" in error.message


def test_an_error_of_its_own_is_kept() -> None:
    own = Error(type="E", message="m")
    assert shown_error(running(payload=b"boo", error=own)) is own


@pytest.mark.parametrize("data", BAD[:4])
def test_a_masked_task_keeps_nothing_that_may_be_secret(data: bytes) -> None:
    task = running(payload=data, result=data, next=b"boo", secret=("card",))
    shown = masked_task(task)
    assert (shown.payload, shown.next) == (b'"[secret]"', None)
    assert shown.error is not None
    assert shown.error.type == DAMAGED
    assert with_type_secrets(task, lambda _: ()) is task


def test_nothing_is_scrubbed_for_an_empty_payload() -> None:
    assert mask_of(b"", ()).values == ()


@pytest.mark.parametrize("data", [b"boo", b"[" * 5_000, b"\xff"])
def test_steps_that_cannot_be_read(data: bytes) -> None:
    assert readable_steps(data) == ()


@pytest.mark.parametrize(
    "steps",
    [b"boo", encode_steps((Step(id=new_id(), type="t", payload=Raw(b"[]"), result_into="x"),))],
    ids=["no JSON", "a list for a payload"],
)
def test_a_task_whose_steps_cannot_be_read_is_buried(steps: bytes) -> None:
    verdict = decide(running(next=steps), Returned(b"1"), Backoff(), 0.5)
    assert isinstance(verdict, Bury)
    assert verdict.error.type == DAMAGED


@pytest.mark.parametrize("payload", [b"boo", b"[]"])
def test_a_limit_counts_it_with_those_without_the_field(payload: bytes) -> None:
    limit = Limit(name="l", by="customer", running=1)
    keys = [permits_of([limit], Subject("q", "t", "", one)) for one in (payload, b"{}")]
    assert keys[0] == keys[1]
