"""New tasks: a caller's options become a validated task, or are refused before anything is stored."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tests.unit.samples import HOUR, NOW, running
from windlass._model.options import Defaults, Options
from windlass._model.task import NewTask, Predecessor
from windlass._policy.input import keys
from windlass._policy.input.chain import Step, decode_steps
from windlass._policy.input.fingerprint import fingerprint
from windlass._policy.input.new_task import (
    MAX_AFTER,
    Origin,
    check_first_options,
    check_options,
    checked_after,
    checked_expiry,
    checked_steps,
    group,
    later_step,
    new_step,
    new_task,
    predecessor_of,
)
from windlass.errors import InvalidOption

ORIGIN = Origin(trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", enqueued_by="web")
TRACE = "00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-00"


def step(defaults: Defaults | None = None, **options: Any) -> Step:
    return new_step(
        "mail.send",
        b'{"to":1}',
        defaults or Defaults(),
        options,
        id="t1",
    )


def task(**options: Any) -> NewTask:
    return new_task(step(**options), options, ORIGIN)


def test_without_options_a_task_is_what_its_type_declares() -> None:
    defaults = Defaults(queue="slow", priority=2, max_attempts=3, timeout=HOUR, secret=("pin",))

    made = new_task(step(defaults), {}, ORIGIN)

    assert made == NewTask(
        id="t1",
        type="mail.send",
        payload=b'{"to":1}',
        root="t1",
        queue="slow",
        priority=2,
        max_attempts=3,
        timeout=HOUR,
        secret=("pin",),
        trace=ORIGIN.trace,
        enqueued_by="web",
    )


def test_the_callers_options_win() -> None:
    made = task(
        queue="mail", tenant="acme", priority="high", delay="5m", max_attempts=2, timeout=9, trace=TRACE
    )

    assert (made.queue, made.tenant, made.priority) == ("mail", "acme", 10)
    assert (made.delay, made.max_attempts) == (timedelta(minutes=5), 2)
    assert (made.timeout, made.trace) == (timedelta(seconds=9), TRACE)


def test_no_timeout_overrides_the_types_own() -> None:
    assert step(Defaults(timeout=HOUR), timeout=None).timeout is None


def test_an_instant_is_kept_as_an_instant() -> None:
    assert task(run_at=NOW).run_at == NOW


def test_an_idempotency_key_comes_with_what_it_stands_for() -> None:
    made = task(idempotency_key="k", idempotency_for="1h")

    assert (made.idempotency_key, made.idempotency_for) == ("k", HOUR)
    assert made.idempotency_digest == keys.request_digest("mail.send", b'{"to":1}')


def test_a_unique_task_has_a_fingerprint_and_another_has_none() -> None:
    found = fingerprint(True, "mail.send", b'{"to":1}', 0, "")

    assert task().fingerprint is None
    assert task(unique=True).fingerprint == found
    declared = replace(step(), unique=True)
    assert new_task(declared, {}, ORIGIN).fingerprint == found
    assert new_task(declared, {"unique": False}, ORIGIN).fingerprint is None
    assert task(unique_for="1h").fingerprint == found
    assert task(unique_for="1h").unique_for == timedelta(hours=1)
    assert task(unique=("to",)).fingerprint == fingerprint(("to",), "mail.send", b'{"to":1}', 0, "")


def test_what_belongs_to_a_step_is_not_said_when_it_is_enqueued() -> None:
    check_first_options({"idempotency_key": "k", "run_at": NOW})

    with pytest.raises(InvalidOption, match=r"delay must be set on the step: .using\(delay=…\).step"):
        check_first_options({"delay": "5m"})
    with pytest.raises(InvalidOption, match="unknown option 'bogus'"):
        check_first_options({"bogus": 1})


def test_a_group_shares_one_trace() -> None:
    one, two = (task(trace=f"00-{n:032x}-{n:016x}-00") for n in (1, 2))

    assert {member.trace for member in group([one, two], LAST, built)} == {one.trace}


def test_what_follows_is_carried_along() -> None:
    below = Step(id="t2", type="after", payload=Raw(b"{}"))

    assert decode_steps(task(next=below).next) == decode_steps(task(next=[below]).next) == (below,)
    on_failure = decode_steps(task(on_failure=below).next)
    assert [(step.id, step.on_failure) for step in on_failure] == [("t2", True)]
    assert checked_steps(None, "next") == checked_steps([], "next") == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"que": "mail"}, "unknown option 'que'; did you mean 'queue'"),
        ({"zzz": 1}, "unknown option 'zzz'; the options are queue, tenant.* trace and within"),
        ({"eta": NOW}, "unknown option 'eta'; use run_at="),
        ({"z" * 100_000: 1}, "unknown option"),
        ({"queue": "a b"}, "the queue 'a b' is not a valid name"),
        ({"tenant": "a b"}, "the tenant 'a b' is not a valid name"),
        ({"priority": "urgent"}, "priority"),
        ({"delay": "soon"}, "delay must be"),
        ({"delay": -1}, "delay must be"),
        ({"run_at": "tomorrow"}, "run_at must be a datetime"),
        ({"run_at": NOW, "delay": 1}, "run_at and delay exclude each other"),
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1 to 10000, got 0"),
        ({"max_attempts": 10_001}, "max_attempts"),
        ({"max_attempts": 1.5}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 10**5000}, "max_attempts"),
        ({"timeout": 0}, "timeout must be greater than 0; use None for no timeout"),
        ({"timeout": "never"}, "timeout must be"),
        ({"idempotency_for": 1}, "idempotency_for needs an idempotency_key"),
        ({"idempotency_key": ""}, "idempotency key"),
        ({"next": "t2"}, "next must be steps, made with a task type's step\\(\\), got 't2'"),
        ({"next": 5}, "next must be steps"),
        ({"next": [5]}, "next must be steps"),
        ({"on_failure": 5}, "on_failure must be steps"),
        ({"trace": "abc"}, "the trace 'abc' is not a W3C traceparent"),
        ({"trace": None}, "the trace None is not"),
        ({"trace": TRACE + "\n"}, "the trace .* is not"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        task(**options)

    assert len(str(caught.value)) < 500


def test_a_type_has_a_proper_name() -> None:
    with pytest.raises(InvalidOption, match="the task type 'a b' is not a valid name"):
        new_step("a b", b"{}", Defaults(), {}, id="t1")


def test_every_option_is_known() -> None:
    check_options(dict.fromkeys(("queue", "tenant", "delay", "run_at", "next", "unique", "trace")))


def test_a_later_step_takes_the_result_where_it_is_told() -> None:
    assert later_step(step(), {}, "before") == replace(step(), result_into="before")


@pytest.mark.parametrize("option", ["run_at", "idempotency_key", "idempotency_for", "trace"])
def test_what_only_a_first_task_may_ask_for_is_refused_in_a_later_step(option: str) -> None:
    with pytest.raises(InvalidOption, match=f"{option} is only for the first task of a chain"):
        later_step(step(), {option: None}, None)


def test_the_last_of_a_group_waits_for_all_the_others_under_one_root() -> None:
    first = [replace(task(), id=id, root=id) for id in ("a", "b")]

    made = group(iter(first), LAST, built)

    assert [(new.id, new.root, new.after) for new in made] == [
        ("a", "a", ()),
        ("b", "a", ()),
        ("z", "a", ("a", "b")),
    ]


def test_a_group_waits_for_something() -> None:
    with pytest.raises(InvalidOption, match="at least one task before its last"):
        group([], LAST, built)


@pytest.mark.parametrize(
    ("tenants", "own", "expected"),
    [
        (["acme", "acme"], "", "acme"),
        (["acme", "beta"], "", ""),
        (["acme", ""], "", ""),
        (["acme", "acme"], "beta", "beta"),
    ],
)
def test_the_last_of_a_group_has_the_tenant_that_the_others_share(
    tenants: list[str], own: str, expected: str
) -> None:
    members = [replace(task(), tenant=tenant) for tenant in tenants]

    *_, last = group(members, replace(LAST, tenant=own, unique=True), built)

    assert last.tenant == expected
    assert last.fingerprint == fingerprint(True, LAST.type, b"{}", 0, expected)


LAST = Step(id="z", type="last", payload=Raw(b"{}"))


def built(step: Step, options: Options) -> NewTask:
    return new_task(step, options, ORIGIN)


A, B = Predecessor("a", "root", "acme"), Predecessor("b", "root", "acme")


@pytest.mark.parametrize(
    ("after", "own", "root", "tenant"),
    [
        ([A, B], "", "root", "acme"),
        ([A, B], "beta", "root", "beta"),
        ([A, Predecessor("c", "c", "acme")], "", "z", "acme"),
        ([A, Predecessor("c", "root", "")], "", "root", ""),
        ([], "", "z", ""),
    ],
)
def test_a_task_takes_over_what_all_its_predecessors_share(
    after: list[Predecessor], own: str, root: str, tenant: str
) -> None:
    new = built(replace(LAST, tenant=own, unique=True), {"after": after})

    assert (new.after, new.root, new.tenant) == (tuple(one.id for one in after), root, tenant)
    assert new.fingerprint == fingerprint(True, LAST.type, b"{}", 0, tenant)


def test_a_result_needs_a_predecessor() -> None:
    wants = replace(LAST, result_into="x")

    assert built(wants, {"after": [A]}).result_into == "x"
    for none in ({}, {"after": []}):
        with pytest.raises(InvalidOption, match="x=RESULT needs a predecessor"):
            built(wants, none)


@pytest.mark.parametrize("wrong", ["a", A, None, {}, ["a"] * (MAX_AFTER + 1)])
def test_what_to_wait_for_is_a_list_of_a_certain_length(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=r"after must be a list|at most 1,000 others"):
        checked_after(wrong)


def test_a_later_step_expires_after_a_duration_only() -> None:
    step = Step(id="a", type="t", payload=Raw(b"{}"))

    with pytest.raises(InvalidOption, match="must be a duration"):
        later_step(step, {"expires": NOW}, None)


def test_a_task_takes_over_root_tenant_and_secrets_of_its_predecessor() -> None:
    task = running(tenant="acme", secret=("iban",))

    assert predecessor_of(task) == Predecessor(task.id, task.root, "acme", ("iban",))


@pytest.mark.parametrize("wrong", ["id", 7, ["id"] * 1_001], ids=["text", "number", "too many"])
def test_after_is_a_bounded_list(wrong: object) -> None:
    assert checked_after(["id"]) == ["id"]
    with pytest.raises(InvalidOption, match=r"after|wait for"):
        checked_after(wrong)


def test_a_task_cannot_expire_at_once() -> None:
    assert checked_expiry(None) is None
    with pytest.raises(InvalidOption, match="greater than 0"):
        checked_expiry(0)


def test_a_caller_adds_to_the_secret_fields_of_the_type() -> None:
    made = step(Defaults(secret=("pin",)), secret=["card.number", "pin"])

    assert made.secret == ("pin", "card.number")


@pytest.mark.parametrize(
    "secret",
    ["card", [""], [1], ["a\n"], ["re:[0-9]"], ["x" * 513], [f"f{number}" for number in range(101)]],
)
def test_what_cannot_name_secret_fields_is_refused(secret: Any) -> None:
    with pytest.raises(InvalidOption, match="secret"):
        step(secret=secret)


@pytest.mark.parametrize("parameter", ["", "a\0", "re:x"])
def test_a_result_goes_into_a_parameter_that_can_be_secret(parameter: str) -> None:
    with pytest.raises(InvalidOption, match="result_into"):
        new_step("t", b"{}", Defaults(), {}, id="t1", result_into=parameter)
