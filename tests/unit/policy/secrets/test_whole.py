"""Tasks and records masked whole: what is not named as seen is hidden."""

from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import decode, encode
from msgspec.structs import replace

from tests.contents import contents
from tests.unit.samples import NOW, SCHEDULE, running, step
from windlass._model.alert import AlertNotice, AlertState, DeadLetter, Turn
from windlass._model.attempt import Attempt
from windlass._model.record import Audit, Declaration
from windlass._model.task import Error, Progress
from windlass._model.transition import TaskTransition
from windlass._policy.input.chain import decode_steps, encode_steps
from windlass._policy.secrets.whole import (
    HIDDEN,
    group_of,
    whole_alarm,
    whole_attempt,
    whole_audit,
    whole_declaration,
    whole_schedule,
    whole_task,
    whole_transition,
    with_stored_documents,
)

CANARY = "7f3asings"
PAYLOAD = b'{"card":"7f3asings"}'
ERROR = Error(type="shop.Declined", message=CANARY, traceback=CANARY)
STEPS = encode_steps((step(type="ship", payload=Raw(PAYLOAD), next=(step(type="mail"),)),))


def test_of_a_task_names_numbers_and_instants_are_left() -> None:
    task = running(
        payload=PAYLOAD, result=b'"7f3asings"', error=ERROR, next=STEPS, failure="f1",
        progress=Progress(fraction=0.5, message=CANARY), idempotency_key=CANARY, cancel_reason=CANARY,
    )  # fmt: skip

    seen = whole_task(task)

    assert CANARY in contents(task)
    assert CANARY not in contents(seen)
    assert (seen.id, seen.type, seen.state, seen.trace) == (task.id, task.type, task.state, task.trace)
    assert (seen.payload, seen.progress, seen.error.type) == (HIDDEN, Progress(fraction=0.5), "shop.Declined")
    assert [one.next[0].type for one in decode_steps(seen.next)] == ["mail"]


def test_of_a_task_without_them_nothing_is_made_up() -> None:
    seen = whole_task(running())

    assert (seen.result, seen.error, seen.progress, seen.idempotency_key) == (None, None, None, None)
    assert (seen.cancel_reason, seen.failure, seen.next) == (None, running().failure, running().next)


def test_failures_of_one_type_of_error_are_one_group() -> None:
    tasks = [running(failure=one, error=Error(type="E", message=one)) for one in ("a", "b")]
    groups = {whole_task(task).failure for task in tasks}

    assert groups == {group_of("mail.send", Error(type="E", message=""))}
    assert group_of("mail.send", None) not in groups


@pytest.mark.parametrize("text", ["declined 7f3asings", "7f3asings!", "4242"])
def test_what_is_not_spelled_like_a_name_is_no_type_of_an_error(text: str) -> None:
    assert whole_task(running(error=Error(type=text, message="m"))).error.type == "[secret]"


def test_an_attempt_and_a_transition_have_the_type_of_the_error_only() -> None:
    attempt = Attempt(
        task_id="t1", number=1, fence=1, worker="w", claimed_at=NOW, finished_at=NOW, duration=1.0,
        outcome="failed", error=ERROR, notes=PAYLOAD,
    )  # fmt: skip
    transition = TaskTransition(
        verb="buried", task_id="t1", type="t", queue="q", tenant="", attempt=1, fence=1, error=ERROR
    )

    for one, seen in ((attempt, whole_attempt(attempt)), (transition, whole_transition(transition))):
        assert CANARY in contents(one)
        assert CANARY not in contents(seen)
        assert seen.error.type == "shop.Declined"
    assert whole_attempt(replace(attempt, error=None)).error is None


def test_a_schedule_hides_its_documents_and_gets_them_back_when_it_is_changed() -> None:
    stored = replace(SCHEDULE, payload=PAYLOAD, next=STEPS, fingerprint="f", secret=("card",))
    seen = whole_schedule(stored)
    assert CANARY not in contents(seen)

    assert with_stored_documents(replace(seen, cron="0 4 * * *"), stored) == replace(stored, cron="0 4 * * *")
    for changed in (
        replace(seen, payload=b"{}"),
        replace(seen, next=None),
        replace(seen, type="other"),
        replace(seen, tenant="other"),
        replace(seen, secret=()),
    ):
        assert with_stored_documents(changed, stored) is None


def entry(**fields: Any) -> Audit:
    return Audit(**{"id": "1", "at": NOW, "who": "ann", "action": "change", "why": CANARY, **fields})


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ('{"type":"t","payload":"7f3asings","error":{"type":"E","message":"7f3asings"}}',
         {"type": "t", "error": {"type": "E", "message": "[secret]"}}),
        ('{"type":"t","edited":true}', {"type": "t", "edited": True}),
        ('{"payload":"7f3asings', None),
        ('["7f3asings"]', None),
    ],
)  # fmt: skip
def test_an_entry_about_a_task_hides_reasons_and_what_repeats_it(given: str, detail: Any) -> None:
    seen = whole_audit(entry(task_id="t1", subject="task t1", detail=given))

    assert CANARY not in contents(seen)
    assert (decode(seen.detail) if seen.detail else None) == detail
    assert whole_audit(entry(task_id="t1", why="")).why == ""


def test_an_entry_about_a_record_is_seen_where_it_can_repeat_no_payload() -> None:
    queue = entry(subject="queue mail", detail='{"paused":[false,true]}')
    assert whole_audit(queue) is queue

    detail = encode({"cron": "x", "payload": CANARY, "next": CANARY, "fingerprint": CANARY}).decode()
    schedule = whole_audit(entry(subject="schedule s", why="", detail=detail))
    assert decode(schedule.detail) == {"cron": "x"}
    assert whole_audit(entry(subject="schedule s", why="", detail='{"payload":"x"}')).detail == ""

    for why in (CANARY, ""):
        endpoint = whole_audit(entry(subject="endpoint 7f3asings", detail=CANARY, why=why))
        assert CANARY not in contents(endpoint)
        assert endpoint.subject == "endpoint"


def test_a_declaration_and_an_alarm_tell_no_texts() -> None:
    letter = DeadLetter(id="t1", type="t", queue="q", error="declined 7f3asings")
    notice = AlertNotice(id="n", turn=Turn.RAISED, number=1, at=NOW, raised_at=NOW, letters=(letter,))
    alarm = AlertState(name="a", unsent=(notice,))

    assert whole_declaration(Declaration(name="schedule/s", body=CANARY)).body == ""
    assert CANARY not in contents(whole_alarm(alarm))
