"""The secrets of tasks: declared by their types, and masked in everything that is shown of them."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from tests.contents import contents
from tests.unit.samples import NOW, running
from windlass._model.alert import Alert
from windlass._model.attempt import Attempt
from windlass._model.limit import Usage
from windlass._model.record import Declaration
from windlass._model.schedule import Schedule
from windlass._model.task import Error, NewTask, Progress, Task
from windlass._policy.input.chain import Step, decode_steps, encode_steps, successors
from windlass._policy.secrets.shown import (
    MAX_PROGRESS,
    edited_payload,
    masked_alert,
    masked_attempt,
    masked_declaration,
    masked_progress,
    masked_schedule,
    masked_task,
    masked_usage,
    secrets_of,
    stays_masked,
    task_mask,
    with_stored_secrets,
    with_type_secrets,
)
from windlass.errors import InvalidOption

TYPES = {"pay": ("card",), "ship": ("address.street",)}


def secret_of(name: str) -> tuple[str, ...]:
    return TYPES.get(name, ())


def step(**fields: object) -> Step:
    return msgspec.convert({"id": "s", "type": "ship", "payload": Raw(b"{}"), **fields}, Step)


def paying(**changes: object) -> Task:
    return replace(running(id="a", type="pay", payload=b'{"card":"4242-1111"}'), **changes)


def test_a_task_gets_the_secrets_of_its_type_and_so_do_the_steps_that_follow() -> None:
    steps = (step(secret=("own",), next=(step(type="pay"),)),)
    task = with_type_secrets(paying(secret=("own",), next=encode_steps(steps)), secret_of)

    assert task.secret == ("own", "card")
    (ship,) = decode_steps(task.next)
    assert ship.secret == ("own", "address.street")
    assert ship.next[0].secret == ("card",)


def test_what_has_them_already_stays_as_it_is() -> None:
    task = paying(secret=("card",), next=encode_steps((step(secret=("address.street",)),)))
    new = NewTask(id="a", type="other", payload=b"{}", root="a")

    assert with_type_secrets(task, secret_of) is task
    assert with_type_secrets(new, secret_of) is new


def test_a_shown_task_has_no_secret_value_anywhere() -> None:
    task = paying(
        secret=("card",),
        result=b'{"receipt":"paid with 4242-1111","token":"abc-def","at":"abc-def"}',
        error=Error(type="E4242-1111", message="4242-1111", traceback="raise E(4242-1111, abc-def)"),
        progress=Progress(fraction=0.5, message="charging 4242-1111"),
        next=encode_steps((step(payload=Raw(b'{"x":"4242-1111","password":"p-w-d"}')),)),
    )

    shown = masked_task(task)

    for secret in ("4242", "abc-def", "p-w-d"):
        assert secret not in contents(shown)
    assert shown.result == b'{"receipt":"paid with [secret]","token":"[secret]","at":"[secret]"}'
    assert shown.error == Error(type="E[secret]", message="[secret]", traceback="raise E([secret], [secret])")


def test_a_task_without_secrets_is_shown_as_it_is() -> None:
    task = replace(running(id="a"), error=Error(type="E", message="no"), progress=Progress(fraction=1.0))

    assert masked_task(task) == task


def test_an_attempt_is_masked_by_the_secrets_of_its_task() -> None:
    attempt = Attempt(
        task_id="a",
        number=1,
        fence=1,
        worker=None,
        claimed_at=NOW,
        finished_at=NOW,
        duration=0,
        outcome="failed",
        error=Error(type="E", message="4242-1111"),
        notes=b'{"card":"x","said":"4242-1111"}',
    )

    shown = masked_attempt(attempt, task_mask(paying(secret=("card",))))

    assert shown.error == Error(type="E", message="[secret]")
    assert shown.notes == b'{"card":"[secret]","said":"[secret]"}'
    assert masked_attempt(replace(attempt, error=None, notes=None), task_mask(paying())).notes is None


def test_a_message_is_masked_before_it_is_cut() -> None:
    progress = Progress(fraction=0, message="x" * (MAX_PROGRESS - 4) + "4242-1111")

    shown = masked_progress(progress, task_mask(paying(secret=("card",))))

    assert shown.message == "x" * (MAX_PROGRESS - 4) + "[sec"


def test_a_schedule_is_masked_with_the_steps_that_follow() -> None:
    steps = encode_steps((step(payload=Raw(b'{"note":"4242-1111"}')),))
    schedule = Schedule(name="s", type="pay", payload=b'{"card":"4242-1111"}', secret=("card",), next=steps)

    assert "4242" not in contents(masked_schedule(schedule))


def test_of_a_webhook_only_the_host_is_shown() -> None:
    alert = Alert(name="a", webhook="https://hooks.example.org/T0/s3cret")

    assert masked_alert(alert).webhook == "https://hooks.example.org/…"
    assert masked_alert(replace(alert, webhook=None)).webhook is None


def test_a_declaration_shows_its_options_and_no_digest_of_them() -> None:
    options = Declaration(name="queue/mail", body='{"priority":1}')
    digest = Declaration(name="schedule/nightly", body="9f86d081884c7d65")

    assert masked_declaration(options) == options
    assert masked_declaration(digest) == replace(digest, body="")


def test_values_of_a_limit_are_digests_that_need_a_key() -> None:
    usage = Usage(name="calls/4242-1111", limit="calls", value="4242-1111", running=2)

    masked = [masked_usage(usage, key) for key in (b"a", b"a", b"b")]

    assert masked[0] == masked[1] != masked[2]
    assert "4242" not in contents(masked)
    assert (masked[0].limit, masked[0].running) == ("calls", 2)
    assert masked[0].value.startswith("[secret] ")


def test_a_secret_in_a_result_is_secret_in_the_tasks_that_follow_two_levels_down() -> None:
    last = step(type="last", id="c", result_into="told")
    following = step(type="next", id="b", result_into="before", next=(last,))
    task = paying(secret=("card",), next=encode_steps((following,)))

    (second,) = successors(task, b'{"used":{"by":"4242-1111"}}')
    shown = masked_task(replace(running(id="b"), payload=second.payload, secret=second.secret))
    assert b"4242-1111" in second.payload
    assert b"4242" not in shown.payload

    running_second = replace(running(id="b"), payload=second.payload, secret=second.secret, next=second.next)
    (third,) = successors(running_second, b'"paid with 4242-1111"')
    assert third.payload == b'{"told":"paid with 4242-1111"}'
    assert "told" in third.secret


def test_the_secrets_of_a_task_are_with_the_types_of_its_steps() -> None:
    def step(type_name: str, *following: Step, secret: tuple[str, ...] = ()) -> Step:
        return Step(id="i", type=type_name, payload=Raw(b"{}"), secret=secret, next=following)

    plain, deep = step("a", step("b")), step("a", step("b", step("c", secret=("pin",))), secret=("card",))

    assert secrets_of(running()) == []
    assert secrets_of(running(secret=("x",), next=encode_steps((plain,)))) == [("mail.send", ("x",))]
    assert secrets_of(running(next=encode_steps((plain, deep)))) == [("a", ("card",)), ("c", ("pin",))]


# -- changes of schedules by who does not see their secrets ----------------------------------------------


NOTE = encode_steps((step(payload=Raw(b'{"text":"paid by 4242-1111"}')),))
PAY = Schedule(name="s", type="pay", payload=b'{"card":"4242-1111","n":1}', secret=("card",), next=NOTE)
SHOWN = masked_schedule(PAY)


def test_what_was_shown_masked_is_kept_however_it_is_written() -> None:
    spaced = replace(SHOWN, payload=b'{ "n": 1, "card": "[secret]" }', paused=True)

    assert with_stored_secrets(SHOWN, PAY) == PAY
    assert with_stored_secrets(spaced, PAY) == replace(PAY, paused=True)


def test_another_payload_is_taken_as_it_is_unless_it_has_a_mask() -> None:
    other = replace(SHOWN, payload=b'{"card":"none"}', next=None)

    assert with_stored_secrets(other, PAY) == other
    with pytest.raises(InvalidOption, match="in the payload by the value"):
        with_stored_secrets(replace(SHOWN, payload=b'{"card":"[secret]"}'), PAY)
    with pytest.raises(InvalidOption, match="in the steps that follow"):
        with_stored_secrets(replace(SHOWN, next=b'[{"id":"x","payload":"[secret]"}]'), PAY)


@pytest.mark.parametrize("text", [b'{"card":"[secret]"}', rb'{"a":["to \u005bsecret]"]}', b'{"[secret]":1}'])
def test_a_mask_is_no_value_of_a_new_schedule_or_of_one_without_secrets(text: bytes) -> None:
    new = Schedule(name="s", type="t", payload=text)

    for stored in (None, replace(new, payload=b"{}"), PAY):
        with pytest.raises(InvalidOption, match="in the payload by the value"):
            with_stored_secrets(new, stored)
    plain = replace(new, payload=rb'{"a":"\u00e9"}')
    assert with_stored_secrets(plain, None) == plain


def test_a_replay_keeps_the_payload_that_is_shown_and_takes_no_other_with_a_mask() -> None:
    task = paying(payload=b'{"card":"4242-1111","n":1}', secret=("card",))
    literal = replace(task, payload=b'{"text":"[secret]"}')

    assert edited_payload(b'{ "n": 1, "card": "[secret]" }', task) is None
    assert edited_payload(b'{"card":"none"}', task) == b'{"card":"none"}'
    assert edited_payload(literal.payload, literal) == literal.payload
    for other in (b'{"card":"[secret]","n":2}', b'{"n":1,"card":"4242-1111","more":"[secret]"}'):
        with pytest.raises(InvalidOption, match="leave the payload out"):
            edited_payload(other, task)


def test_a_mask_that_is_stored_stays_a_value() -> None:
    plain = Schedule(name="s", type="t", payload=b'{"text":"[secret]"}')

    assert with_stored_secrets(plain, plain) is not None
    assert stays_masked(replace(plain, type="u", tenant="x"), plain)


def test_what_is_not_json_is_kept_and_compared_as_it_is() -> None:
    damaged = Schedule(name="s", type="t", payload=b"{4242-1111")

    assert with_stored_secrets(masked_schedule(damaged), damaged) == damaged
    assert with_stored_secrets(replace(damaged, payload=b"{other"), damaged).payload == b"{other"


@pytest.mark.parametrize(
    "change", [{"type": "noop"}, {"tenant": "x"}, {"secret": ()}, {"secret": ("n",)}, {"payload": b"{}"}]
)
def test_a_change_that_could_show_what_it_keeps_is_told(change: dict[str, Any]) -> None:
    assert not stays_masked(replace(SHOWN, **change), PAY)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"queue": "q", "paused": True},
        {"secret": ("n", "card")},
        {"payload": b"{}", "next": None, "type": "noop", "secret": ()},
    ],
)
def test_other_changes_show_nothing(change: dict[str, Any]) -> None:
    assert stays_masked(replace(SHOWN, **change), PAY)


def test_steps_with_secrets_of_their_own_stay_beside_another_payload() -> None:
    own = encode_steps((step(payload=Raw(b'{"pin":"7777"}'), secret=("pin",)),))
    stored = replace(PAY, next=own)

    assert stays_masked(replace(masked_schedule(stored), payload=b"{}"), stored)
