"""Tasks are part of Django's transactions: both or neither."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import connection, transaction

from tests.integrations.django.shop_tasks import ship
from windlass import NotFound
from windlass.errors import DuplicateTask
from windlass.integrations.django import app
from windlass.integrations.django.django_app import DjangoApp
from windlass.integrations.django.settings import Settings

pytestmark = pytest.mark.usefixtures("database")


def exists(task_id: str, on: DjangoApp = app) -> bool:
    try:
        on.sync_client.get(task_id)
    except NotFound:
        return False
    return True


def test_a_task_exists_once_the_transaction_commits() -> None:
    with transaction.atomic():
        Group.objects.create(name="A1")
        handle = ship.enqueue(order="A1")
        if connection.vendor == "postgresql":  # on SQLite, readers wait for the writer
            assert not exists(handle.id)

    assert exists(handle.id)


def test_a_rollback_leaves_nothing() -> None:
    with transaction.atomic():
        handle = ship.enqueue(order="A1")
        transaction.set_rollback(True)

    assert not exists(handle.id)


def test_a_rollback_to_a_savepoint_removes_what_came_after_it() -> None:
    with transaction.atomic():
        outer = ship.enqueue(order="A1")
        with transaction.atomic():
            inner = ship.enqueue(order="A2")
            transaction.set_rollback(True)
        later = ship.enqueue(order="A3")

    assert [exists(handle.id) for handle in (outer, inner, later)] == [True, False, True]


def test_a_refusal_leaves_the_transaction_usable() -> None:
    with transaction.atomic():
        ship.using(unique=True).enqueue(order="A1")
        with pytest.raises(DuplicateTask):
            ship.using(unique=True).enqueue(order="A1")
        Group.objects.create(name="A1")

    assert Group.objects.filter(name="A1").exists()


def test_tasks_can_be_enqueued_on_commit() -> None:
    handles: list[Any] = []
    with transaction.atomic():
        transaction.on_commit(lambda: handles.append(ship.enqueue(order="A1")))
        assert not handles

    assert exists(handles[0].id)


def test_without_a_transaction_a_task_is_enqueued_at_once() -> None:
    handle = ship.enqueue(order="A1")

    assert exists(handle.id)


@pytest.mark.parametrize("commits", [True, False])
def test_async_code_joins_the_transaction_around_it(commits: bool) -> None:
    async def enqueue() -> str:
        return (await ship.aenqueue(order="A1")).id

    with transaction.atomic():
        task_id = async_to_sync(enqueue)()
        if not commits:
            transaction.set_rollback(True)

    assert exists(task_id) is commits


def test_async_code_without_a_transaction_enqueues_at_once() -> None:
    async def enqueue() -> str:
        return (await ship.aenqueue(order="A1")).id

    assert exists(async_to_sync(enqueue)())


def test_many_tasks_are_part_of_it() -> None:
    with transaction.atomic():
        handles = ship.enqueue_many([{"order": "A1"}, {"order": "A2"}])
        transaction.set_rollback(True)

    assert not any(exists(handle.id) for handle in handles)


class TestStoreElsewhere:
    """A store that is not in Django's database gets tasks after the commit."""

    @pytest.fixture
    def elsewhere(self) -> DjangoApp:
        return DjangoApp(Settings(store="memory://", joins=False))

    def test_after_the_commit(self, elsewhere: DjangoApp) -> None:
        task = elsewhere.task(name="later")(lambda: None)
        with transaction.atomic():
            handle = task.enqueue()
            assert not exists(handle.id, elsewhere)

        assert exists(handle.id, elsewhere)

    def test_never_after_a_rollback(self, elsewhere: DjangoApp) -> None:
        task = elsewhere.task(name="later")(lambda: None)
        with transaction.atomic():
            handle = task.enqueue()
            transaction.set_rollback(True)

        assert not exists(handle.id, elsewhere)

    def test_at_once_without_a_transaction(self, elsewhere: DjangoApp) -> None:
        assert exists(elsewhere.task(name="later")(lambda: None).enqueue().id, elsewhere)
