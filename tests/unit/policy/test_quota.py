"""Quotas: their options, what a batch adds, and whose quota it exceeds."""

from typing import Any

import pytest
from msgspec import Raw

from windlass._ids import new_id
from windlass._model.filter import Count
from windlass._model.limit import MAX_STORED_BYTES, Quota, Use
from windlass._model.task import NewTask
from windlass._policy.input.chain import Step, encode_steps
from windlass._policy.quota import (
    TenantUse,
    by_quota,
    demand,
    first_exceeded,
    format_size,
    new_quota,
    parse_size,
    quota_of,
    uses,
)
from windlass.errors import InvalidOption

ACME, OTHERS = Quota(name="acme", tasks=10), Quota(name="*", tasks=2)


def a_task(tenant: str = "", *following: Step, payload: bytes = b"{}") -> NewTask:
    task_id = new_id()
    return NewTask(
        id=task_id, root=task_id, type="t", payload=payload, tenant=tenant, next=encode_steps(following)
    )


def a_step(tenant: str = "", *following: Step) -> Step:
    return Step(id=new_id(), type="t", payload=Raw(b"{}"), tenant=tenant, next=following)


@pytest.mark.parametrize(
    ("text", "size"),
    [(0, 0), (10**15, 10**15), ("00", 0), ("10", 10), ("10B", 10), ("1K", 1000), ("1kb", 1000),
     ("1.5kB", 1500), ("2 MB", 2_000_000), ("3GB", 3 * 10**9), ("1TB", 10**12), ("1KiB", 1024),
     ("2MiB", 2 << 20), ("1GiB", 1 << 30), ("1TiB", 1 << 40)],
)  # fmt: skip
def test_a_size(text: int | str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "wrong", [-1, True, 1.5, None, "", "x", "1 XB", "1,000", "-1B", "9999TB", MAX_STORED_BYTES + 1]
)
def test_what_is_no_size(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="bytes must be"):
        parse_size(wrong)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (2 * 10**6, "2.0 MB"),
        (10**9, "1.0 GB"),
        (10**13, "10.0 TB"),
    ],
)
def test_a_size_as_people_read_it(size: int, text: str) -> None:
    assert format_size(size) == text


def test_a_new_quota() -> None:
    assert new_quota("acme", tasks=5, bytes="1kB") == Quota(name="acme", tasks=5, bytes=1000)
    assert new_quota("*", tasks=0) == Quota(name="*", tasks=0)


@pytest.mark.parametrize(
    ("tenant", "options"),
    [("a b", {"tasks": 1}), ("", {"tasks": 1}), ("**", {"tasks": 1}), ("a", {}), ("a", {"tasks": True}),
     ("a", {"tasks": "5"}), ("a", {"bytes": "x"})],
)  # fmt: skip
def test_what_is_no_quota(tenant: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        new_quota(tenant, **options)


def test_use_by_counts() -> None:
    counts = [Count(values=("acme",), number=2, steps=3, bytes=70), Count(values=("",), number=1)]
    assert uses(counts) == {"acme": Use(5, 70), "": Use(1, 0)}


def test_a_batch_demands_room_for_each_tenant() -> None:
    batch = [a_task("acme", payload=b'{"a":1}'), a_task("acme"), a_task()]
    assert demand(batch) == {"acme": Use(2, 9), "": Use(1, 2)}


def test_a_chain_demands_room_for_all_its_steps() -> None:
    task = a_task("acme", a_step("", a_step("bob", a_step())), a_step())
    assert task.next is not None
    assert demand([task]) == {"acme": Use(3, 2 + len(task.next)), "bob": Use(2)}


def test_a_tenant_without_an_own_quota_has_that_of_the_others() -> None:
    quotas = {one.name: one for one in (ACME, OTHERS)}
    assert [quota_of(quotas, tenant) for tenant in ("acme", "bob", "")] == [ACME, OTHERS, OTHERS]
    assert quota_of({"acme": ACME}, "bob") is None


def test_the_first_quota_that_is_exceeded() -> None:
    quotas = {one.name: one for one in (ACME, OTHERS)}
    used = {"acme": Use(9, 0), "bob": Use(1, 0)}
    assert first_exceeded(quotas, used, {"acme": Use(1), "bob": Use(1), "new": Use(2)}) is None
    assert first_exceeded(quotas, used, {"acme": Use(1), "bob": Use(2)}) == TenantUse("bob", Use(1))
    assert first_exceeded(quotas, used, {"acme": Use(2)}) == TenantUse("acme", Use(9))
    assert first_exceeded({"acme": ACME}, used, {"bob": Use(10**9)}) is None


def test_who_uses_each_quota() -> None:
    quotas = {one.name: one for one in (ACME, OTHERS, Quota(name="idle", bytes=1))}
    used = {"acme": Use(3), "bob": Use(1), "": Use(2), "cy": Use(1)}
    assert by_quota(quotas, used) == {
        "acme": [TenantUse("acme", Use(3))],
        "*": [TenantUse("", Use(2)), TenantUse("bob", Use(1)), TenantUse("cy", Use(1))],
        "idle": [TenantUse("idle", Use())],
    }
    assert by_quota({"acme": ACME}, used) == {"acme": [TenantUse("acme", Use(3))]}
