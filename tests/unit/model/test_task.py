"""Task ids: which text is spelled like one."""

import json
from datetime import timedelta

import pytest
from pydantic import TypeAdapter

from tests.unit.samples import HOUR, NOW, running
from windlass._ids import new_id
from windlass._model.attempt import Attempt
from windlass._model.task import NewTask, Progress, Task, expiry_of, is_task_id

ID = "0199c3a2-7d10-7abc-8def-0123456789ab"


@pytest.mark.parametrize("wrong", ["", "mail", ID.upper(), f"{ID}\n", None, 7])
def test_anything_but_a_uuid_in_lower_case_is_no_task_id(wrong: object) -> None:
    assert is_task_id(ID)
    assert is_task_id(new_id())
    assert not is_task_id(wrong)


def test_a_task_and_what_it_has_are_dictionaries_of_plain_values_on_request() -> None:
    task = running(payload=b'{"n":1}', progress=Progress(fraction=0.5, message="half"))

    assert (task.as_dict()["payload"], task.as_dict()["state"]) == ({"n": 1}, "running")
    assert task.progress is not None
    assert task.progress.as_dict() == {"fraction": 0.5, "message": "half"}
    attempt = Attempt(
        task_id=ID,
        number=1,
        fence=1,
        worker="w",
        claimed_at=NOW,
        finished_at=NOW,
        duration=0.0,
        outcome="failed",
        notes=b'{"code":503}',
    )
    assert attempt.as_dict()["notes"] == {"code": 503}


def test_a_task_expires_unless_it_has_started() -> None:
    assert running(attempt=0, expires_at=NOW).is_expired(NOW)
    assert not running(attempt=1, expires_at=NOW).is_expired(NOW)
    assert not running(attempt=0, expires_at=NOW).is_expired(NOW - timedelta(microseconds=1))
    assert not running(attempt=0).is_expired(NOW)


def test_a_duration_to_expiry_counts_from_when_the_task_is_due() -> None:
    new = NewTask(id=ID, type="t", payload=b"{}", root=ID, expires_in=HOUR)

    assert expiry_of(new, NOW - HOUR, NOW) == NOW + HOUR
    assert expiry_of(new, NOW + HOUR, NOW) == NOW + 2 * HOUR


def test_what_has_a_document_is_a_dictionary_and_json() -> None:
    task = running(payload=b'{"password": "hunter2"}')

    assert dict(task) == task.as_dict()
    assert task.as_dict()["payload"] == {"password": "[secret]"}
    assert json.loads(task.to_json()) == task.as_dict()
    assert dict(Progress(fraction=0.5)) == {"fraction": 0.5, "message": ""}


def test_pydantic_takes_and_encodes_what_has_a_document() -> None:
    half = Progress(fraction=0.5)
    adapter = TypeAdapter(list[Progress])

    assert adapter.validate_python([half]) == [half]
    assert adapter.dump_python([half], mode="json") == [half.as_dict()]
    assert adapter.json_schema()["items"]["required"] == ["fraction"]
    assert TypeAdapter(Task).json_schema(mode="serialization")["title"] == "Task"
