"""A worker in a Django project: handlers get usable connections, and leave none behind."""

import asyncio
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connections

from tests.integrations.django.shop_tasks import ship, ship_async, used
from windlass import State, TaskType, WorkerSettings
from windlass.integrations.django import app

KINDS = pytest.mark.parametrize("task", [ship, ship_async], ids=["sync", "async"])


def drain(slots: int = 2) -> None:
    """Run all tasks that are ready, in threads and an event loop of their own."""

    async def work() -> None:
        try:
            await app.worker(WorkerSettings(drain=True, slots=slots)).run()
        finally:
            await app.close()

    asyncio.run(work())


@KINDS
def test_a_handler_uses_the_orm_and_its_connection_is_closed(
    task: TaskType[Any, Any, int], database: dict[str, Any]
) -> None:
    order = Group.objects.create(name="A1")
    handle = task.enqueue(order="A1")

    drain()

    assert handle.result(timeout=10) == order.pk
    assert len(used) == 1
    assert used[0] is not connections["default"]
    assert used[0].connection is None


def test_connections_of_threads_are_kept_if_they_are_persistent(database: dict[str, Any]) -> None:
    Group.objects.create(name="A1")
    database["CONN_MAX_AGE"] = None
    try:
        handles = [ship.enqueue(order="A1") for _ in range(3)]
        drain(slots=1)
    finally:
        database["CONN_MAX_AGE"] = 0

    assert all(handle.state() is State.COMPLETED for handle in handles)
    assert len({id(wrapper.connection) for wrapper in used}) == 1
    assert used[0].connection is not None
    used[0].inc_thread_sharing()
    used[0].close()


@pytest.mark.parametrize("migrated", ["postgres"], indirect=True)
def test_a_connection_that_broke_while_idle_fails_no_task(database: dict[str, Any]) -> None:
    """Although it is persistent, and CONN_HEALTH_CHECKS is off."""
    Group.objects.create(name="A1")
    database["CONN_MAX_AGE"] = None
    handles = [ship.enqueue(order="A1"), break_then_ship.enqueue(order="A1"), ship.enqueue(order="A1")]
    try:
        drain(slots=1)
    finally:
        database["CONN_MAX_AGE"] = 0

    tasks = [handle.task() for handle in handles]
    assert [(task.state, task.attempt) for task in tasks] == [(State.COMPLETED, 1)] * 3
    used[-1].inc_thread_sharing()
    used[-1].close()


@app.task(name="tests.break_then_ship")
def break_then_ship(order: str) -> int:
    """Succeed, and have the server end the connection of this thread, which does not notice."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    found = Group.objects.get(name=order).pk
    other = connections["default"].copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    other.close()
    return found


def test_a_direct_call_is_the_function_itself(database: dict[str, Any]) -> None:
    order = Group.objects.create(name="A1")
    before = connections["default"].connection

    assert ship(order="A1") == order.pk
    assert connections["default"].connection is before
