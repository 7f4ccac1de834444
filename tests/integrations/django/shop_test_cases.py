"""Tests as a project writes them with the mixin; test_mixin.py runs them on each database."""

# ruff: noqa: PT009, PT027 - written as users of unittest do

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from tests.integrations.django.framework_tasks import add, count_groups
from tests.integrations.django.shop_tasks import ship, ship_async
from windlass import State
from windlass.integrations.django.test import WindlassTestMixin


class Orders(WindlassTestMixin):
    """What holds in a `TestCase` and in a `TransactionTestCase`."""

    def test_handlers_see_what_the_test_has_written(self: Any) -> None:
        order = Group.objects.create(name="A1")
        handles = [ship.enqueue(order="A1"), ship_async.enqueue(order="A1")]

        self.assertEqual(self.run_tasks(), 2)

        self.assertEqual([handle.result(timeout=10) for handle in handles], [order.pk, order.pk])

    def test_handlers_use_the_connection_of_the_test(self: Any) -> None:
        with transaction.atomic():
            Group.objects.create(name="A1")
            handle = ship.enqueue(order="A1")
            self.run_tasks()
            transaction.set_rollback(True)

        self.assertIs(handle.state(), State.COMPLETED)
        self.assertFalse(Group.objects.filter(name="A1").exists())

    def test_tasks_of_a_rolled_back_savepoint_are_gone(self: Any) -> None:
        with transaction.atomic():
            ship.using(unique=True).enqueue(order="A1")
            with transaction.atomic():
                ship.using(unique=True).enqueue(order="A2")
                transaction.set_rollback(True)
            ship.using(unique=True).enqueue(order="A2")

        self.assertEqual(len(self.enqueued(ship)), 2)
        self.assertEnqueued(ship, order="A1")
        self.assertNotEnqueued(ship, order="A3")

    def test_a_rolled_back_transaction_leaves_nothing(self: Any) -> None:
        with transaction.atomic():
            ship.enqueue(order="A1")
            transaction.set_rollback(True)

        self.assertEqual(self.run_tasks(), 0)
        self.assertNotEnqueued(ship)
        with self.assertRaisesMessage(AssertionError, "shop_tasks.ship, found 0; nothing was enqueued"):
            self.assertEnqueued(ship)

    def test_an_error_of_a_handler_is_raised(self: Any) -> None:
        ship.enqueue(order="missing")

        with self.assertRaises(Group.DoesNotExist):
            self.run_tasks()

    def test_an_error_is_retried_as_time_goes_by(self: Any) -> None:
        handle = ship.enqueue(order="A1")
        self.run_tasks(raise_errors=False)
        self.assertEqual(handle.task().attempt, 1)
        Group.objects.create(name="A1")

        self.advance("1h")
        self.run_tasks()

        self.assertIs(handle.state(), State.COMPLETED)

    def test_django_tasks(self: Any) -> None:
        Group.objects.create(name="A1")
        results = [add.enqueue(1, b=2), count_groups.enqueue("A1")]
        self.assertEnqueued(add, args=[1])

        self.run_tasks()

        for result in results:
            result.refresh()
        self.assertEqual([result.return_value for result in results], [3, 1])

    async def test_async_tests(self: Any) -> None:
        order = await Group.objects.acreate(name="A1")
        handle = await ship.aenqueue(order="A1")

        await sync_to_async(self.run_tasks)()

        self.assertEqual(await handle.result(timeout=10), order.pk)

    def test_the_store_of_the_project_is_not_used(self: Any) -> None:
        ship.enqueue(order="A1")

        with connection.cursor() as cursor:
            prefix = "windlass." if connection.vendor == "postgresql" else "windlass_"
            cursor.execute(f"SELECT count(*) FROM {prefix}task")
            self.assertEqual(cursor.fetchone(), (0,))


class TestInTransaction(Orders, TestCase):
    """In the transaction that the test case rolls back."""

    def test_everything_is_in_it(self) -> None:
        self.assertTrue(connection.in_atomic_block)


class TestWithCommits(Orders, TransactionTestCase):
    """With real transactions; tables are emptied after each test."""

    available_apps = None
