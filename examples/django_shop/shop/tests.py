"""Tests of the shop: tasks run in the transaction of the test, without a worker."""

from django.contrib.auth import get_user_model
from django.core import mail
from django.test import TestCase

from shop.models import Order
from shop.tasks import count_open_orders, ship
from windlass.integrations.django.test import WindlassTestMixin


class OrderTest(WindlassTestMixin, TestCase):
    """Orders and their tasks."""

    def test_an_order_is_shipped(self) -> None:
        placed = self.client.post("/orders/", {"item": "rope", "email": "ada@example.org"})
        order = Order.objects.get(pk=placed.json()["order"])
        self.assertEnqueued(ship, order_id=order.pk)

        self.run_tasks()

        order.refresh_from_db()
        self.assertIsNotNone(order.shipped_at)
        self.assertEqual([message.to for message in mail.outbox], [["ada@example.org"]])

    def test_a_refused_order_leaves_nothing(self) -> None:
        refused = self.client.post("/orders/", {"item": "anchor", "email": "ada@example.org"})

        self.assertEqual(refused.status_code, 409)
        self.assertNotEnqueued(ship)
        self.assertFalse(Order.objects.exists())

    def test_open_orders_are_counted_every_day(self) -> None:
        Order.objects.create(item="rope", email="ada@example.org")

        self.advance("1d")
        self.run_tasks()

        (task,) = self.enqueued(count_open_orders)
        self.assertEqual(task.result, b"1")


class DashboardTest(WindlassTestMixin, TestCase):
    """Who may see the dashboard."""

    def test_staff_see_it(self) -> None:
        user = get_user_model().objects.create_user("ann", is_staff=True)
        self.client.force_login(user)
        ship.enqueue(order_id=1)

        page = self.client.get("/windlass/dashboard/queues")

        self.assertContains(page, "mail")

    def test_customers_do_not(self) -> None:
        self.client.force_login(get_user_model().objects.create_user("bob"))
        self.assertEqual(self.client.get("/windlass/dashboard/").status_code, 403)

    def test_others_are_asked_to_sign_in(self) -> None:
        page = self.client.get("/windlass/dashboard/queues", headers={"accept": "text/html"})

        self.assertEqual(page.status_code, 303)
        self.assertTrue(page["location"].startswith("/admin/login/?next=/windlass/dashboard/queues"))

    def test_the_api_takes_keys_only(self) -> None:
        self.client.force_login(get_user_model().objects.create_superuser("root"))
        self.assertEqual(self.client.get("/windlass/tasks").status_code, 401)
