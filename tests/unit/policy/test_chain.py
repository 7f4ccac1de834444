"""Chains: steps are stored in their predecessor and returned unchanged, with its result."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from tests.unit.samples import running
from windlass._model.task import Error
from windlass._policy.input.chain import (
    MAX_LEVELS,
    MAX_STEPS,
    MAX_STEPS_BYTES,
    Step,
    all_ids,
    awaited_by,
    awaited_ends,
    chain,
    decode_steps,
    encode_new_steps,
    encode_steps,
    number_of_steps,
    results_list,
    successors,
    successors_on_failure,
    visible_steps,
    with_fresh_ids,
    with_result,
)
from windlass._policy.input.payload import encode, encode_payload
from windlass.errors import InvalidOption

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
results = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | text | st.lists(text, max_size=3)
)
payloads = st.dictionaries(text, results, max_size=3).map(encode_payload)
durations = st.none() | st.timedeltas(timedelta(0), timedelta(days=3660))


def step_with(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        id=text,
        type=text,
        payload=payloads.map(Raw),
        queue=text,
        tenant=text,
        priority=st.integers(-100, 100),
        delay=durations,
        max_attempts=st.integers(1, 10_000),
        timeout=durations,
        result_into=st.none() | text.filter(bool),
        secret=st.lists(text, max_size=2).map(tuple),
        next=below,
    )


steps = st.recursive(
    st.just(()), lambda below: st.lists(step_with(below), max_size=3).map(tuple), max_leaves=5
)


def step(id: str, *below: Step, payload: bytes = b"{}", **options: Any) -> Step:
    return Step(id=id, type=f"type.{id}", payload=Raw(payload), next=below, **options)


def test_a_chain_is_its_steps_one_inside_the_other() -> None:
    assert chain(step("a")) == step("a")
    assert chain(step("a"), step("b"), step("c")) == step("a", step("b", step("c")))


def test_a_chain_comes_after_what_a_step_was_given_before() -> None:
    assert chain(step("a", step("b")), step("c")) == step("a", step("b"), step("c"))


@pytest.mark.parametrize("make", [chain, lambda one: chain(step("a"), one), step("a").then])
def test_what_is_no_step_is_refused_in_a_chain(make: Callable[[Any], Step]) -> None:
    with pytest.raises(InvalidOption, match=r"steps, not of a list; make one with a task type's step\(\)"):
        make([])


def test_no_steps_are_carried_as_nothing() -> None:
    assert encode_steps(()) is None
    assert decode_steps(None) == decode_steps(b"") == ()
    assert successors(running(), b"1") == ()


@given(steps)
def test_steps_come_out_as_they_went_in(carried: tuple[Step, ...]) -> None:
    assert decode_steps(encode_steps(carried)) == carried


@given(step_with(st.just(())))
def test_a_successor_is_its_step_in_every_field_and_its_predecessors_where_it_has_none(one: Step) -> None:
    task = running()

    (new,) = successors(running(next=encode_steps((one,))), b"1")

    for name in (
        "id",
        "type",
        "queue",
        "priority",
        "delay",
        "max_attempts",
        "timeout",
        "secret",
    ):
        assert getattr(new, name) == getattr(one, name)
    assert new.tenant == one.tenant or task.tenant
    assert (new.root, new.trace, new.enqueued_by) == (task.root, task.trace, task.enqueued_by)
    assert (new.next, new.after, new.run_at) == (None, (), None)


def test_a_payload_reaches_its_task_byte_for_byte() -> None:
    payload = '{ "b": 1.50 ,"a":"\\u00e9é", "n": 9223372036854775807 }'.encode()

    first = running(next=encode_steps((step("t2", step("t3", payload=payload), payload=payload),)))
    (second,) = successors(first, b"1")
    (third,) = successors(running(next=second.next), b"2")

    assert second.payload == third.payload == payload


def test_nested_steps_follow_one_another_under_the_ids_they_were_given() -> None:
    task = running(next=encode_steps((step("t2", step("t3", step("t4"))),)))
    ids = []

    while task.next:
        (new,) = successors(task, None)
        ids.append(new.id)
        task = running(id=new.id, root=new.root, next=new.next)

    assert ids == ["t2", "t3", "t4"]
    assert task.root == "t0"


def test_several_steps_follow_one_task_side_by_side() -> None:
    task = running(next=encode_steps((step("a", step("c")), step("b"))))

    assert [(new.id, bool(new.next)) for new in successors(task, None)] == [("a", True), ("b", False)]


def test_repeating_a_completion_makes_the_same_tasks() -> None:
    task = running(next=encode_steps((step("t2", step("t3")),)))

    assert successors(task, b"1") == successors(task, b"1")


@pytest.mark.parametrize(
    ("result", "handed_on"), [(b"42", 42), (b'{"a":[1]}', {"a": [1]}), (b"null", None), (None, None)]
)
def test_a_result_is_handed_on_under_the_name_asked_for(result: bytes | None, handed_on: object) -> None:
    task = running(next=encode_steps((step("t2", payload=b'{"x":1}', result_into="before"),)))

    (new,) = successors(task, result)

    assert json.loads(new.payload) == {"x": 1, "before": handed_on}


def test_a_result_is_not_handed_on_unasked() -> None:
    (new,) = successors(running(next=encode_steps((step("t2", payload=b'{"x":1}'),))), b"42")

    assert new.payload == b'{"x":1}'


@given(payloads, text, results)
def test_handing_on_a_result_changes_nothing_else(payload: bytes, name: str, result: object) -> None:
    made = with_result(payload, name, encode(result, "result"))

    assert json.loads(made) == {**json.loads(payload), name: result}


@given(st.lists(results))
def test_the_results_of_a_group_keep_their_order(given_results: list[object]) -> None:
    made = results_list(tuple(None if one is None else encode(one, "result") for one in given_results))

    assert json.loads(made) == given_results


def test_the_longest_chain_can_be_carried() -> None:
    longest = (chain(*map(step, map(str, range(MAX_LEVELS)))),)

    assert decode_steps(encode_new_steps(longest)) == longest


def test_many_steps_and_large_ones_can_be_carried_up_to_a_bound() -> None:
    many = tuple(step(str(n)) for n in range(MAX_STEPS))
    large = step("x", payload=b'{"x":"%s"}' % (b"x" * (MAX_STEPS_BYTES - 60)))

    assert decode_steps(encode_new_steps(many)) == many
    assert len(encode_new_steps((large,)) or b"") <= MAX_STEPS_BYTES
    with pytest.raises(InvalidOption, match="more than 1,000 steps follow one task"):
        encode_new_steps((*many, step("one too many")))
    with pytest.raises(InvalidOption, match=r"4,\d{3},\d{3} bytes of JSON, more than the limit of 4,194,304"):
        encode_new_steps((large, step("one too many")))


def test_steps_that_share_their_successors_are_refused_before_they_multiply() -> None:
    below = step("x")
    for _ in range(60):
        below = step("x", below, below)

    with pytest.raises(InvalidOption, match="more than 1,000 steps"):
        encode_new_steps((below,))


def test_a_step_without_a_tenant_has_that_of_the_task_before_it() -> None:
    task = running(tenant="acme", next=encode_steps((step("a", step("b")), step("c", tenant="beta"))))

    first, other = successors(task, None)
    (second,) = successors(running(tenant=first.tenant, next=first.next), None)

    assert [first.tenant, second.tenant, other.tenant] == ["acme", "acme", "beta"]


@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 50_000])
def test_a_longer_chain_is_refused_before_anything_recurses(levels: int) -> None:
    with pytest.raises(
        InvalidOption, match="a chain can be at most 200 tasks long; let its last task enqueue"
    ):
        encode_new_steps((chain(*map(step, map(str, range(levels)))),))


def test_a_step_enqueued_again_has_fresh_ids_all_the_way_down() -> None:
    below = Step(id="b", type="b", payload=Raw(b"{}"))
    top = Step(id="a", type="a", payload=Raw(b"{}")).then(below, below)
    ids = iter("123")

    made = with_fresh_ids(top, lambda: next(ids))

    assert (made.id, all_ids(made.next)) == ("1", ("2", "3"))
    assert made.type == "a"


def test_too_deep_a_chain_is_refused_before_it_is_walked() -> None:
    deep = Step(id="x", type="x", payload=Raw(b"{}"))
    for _ in range(MAX_LEVELS + 2):
        deep = Step(id="x", type="x", payload=Raw(b"{}")).then(deep)

    with pytest.raises(InvalidOption, match="tasks long"):
        with_fresh_ids(deep, lambda: "x")


def test_a_task_that_waits_for_a_chain_waits_for_its_ends() -> None:
    following = awaited_by((step("b", step("c"), step("d")),), "then")
    task = running(next=encode_steps(following))

    assert awaited_ends(task, "then") == ("c", "d")
    assert awaited_ends(task, "another") == (task.id,)


def test_steps_on_failure_follow_a_death_and_no_completion() -> None:
    refund = Step(id="r", type="refund", payload=Raw(b'{"order":7}'), result_into="why")
    both = chain(*[Step(id=f"s{n}", type="t", payload=Raw(b"{}")) for n in range(2)], on_failure=refund)
    task = running(id="s0", type="t", next=encode_steps(both.next))

    (second,) = successors(task, None)
    (failed,) = successors_on_failure(task, Error(type="ValueError", message="no funds", traceback="…"))

    assert second.id == "s1"
    assert [step.id for step in decode_steps(second.next)] == ["r"]
    assert failed.type == "refund"
    assert json.loads(failed.payload) == {
        "order": 7,
        "why": {"id": "s0", "type": "t", "error": {"type": "ValueError", "message": "no funds"}},
    }
    assert failed.root == task.root


def test_steps_that_a_reader_may_not_see_hide_what_follows_them() -> None:
    own, foreign, inner = (Step(id=one, type="t", payload=Raw(b"{}")) for one in "ofi")
    foreign = replace(foreign, tenant="other", queue="q").then(inner)
    own = replace(own, queue="q").then(inner, foreign)

    def of(steps: tuple[Step, ...], tenant: str) -> tuple[str, ...]:
        return all_ids(visible_steps(steps, "mine", lambda queue, whose: whose == tenant))

    assert of((own, foreign), "mine") == ("o", "i")
    assert of((own, foreign), "other") == ("f", "i")


def test_steps_on_failure_are_not_waited_for_nor_counted_among_what_follows() -> None:
    refund = Step(id="r", type="refund", payload=Raw(b"{}"))
    first, second = (Step(id=f"s{n}", type="t", payload=Raw(b"{}")) for n in range(2))
    following = chain(first, second, on_failure=refund).next

    assert all_ids(following) == ("s1",)
    assert number_of_steps(following) == 3
    awaited = awaited_by(following, "last")
    assert [step.before for step in awaited] == [("last",), ()]
    assert [step.before for step in awaited[0].next] == [()]
    assert awaited_ends(running(id="s0", next=encode_steps(awaited)), "last") == ("s1",)


def test_what_is_no_step_cannot_follow_a_failure() -> None:
    wrong: Any = "refund"
    with pytest.raises(InvalidOption, match="a chain consists of steps"):
        chain(Step(id="s", type="t", payload=Raw(b"{}")), on_failure=wrong)
