"""Tests of the shop: `DATABASE_URL=postgresql://localhost/shop_test pytest`."""

import pytest
from fastapi.testclient import TestClient
from shop.models import Charge, Order, Product
from shop.outside import Declined
from shop.tasks import charge, draw_report, send_email, sync_stock
from sqlalchemy import select
from sqlalchemy.orm import Session

from windlass import State
from windlass.testing.harness import Harness

ROPE = {"merchant": "acme", "product": "rope", "email": "ada@example.org", "quantity": 2}


def test_an_order_is_charged_and_confirmed(http: TestClient, tasks: Harness, database: Session) -> None:
    order = http.post("/orders", json=ROPE).json()
    assert order["paid_at"] is None
    tasks.assert_enqueued(charge, {"order_id": order["id"]}, tenant="acme")

    tasks.run_until_idle()

    assert http.get(f"/orders/{order['id']}").json()["paid_at"] is not None
    assert [str(one.amount) for one in database.scalars(select(Charge))] == ["19.00"]
    tasks.assert_enqueued(send_email, {"to": "ada@example.org"}, tenant="acme")


def test_an_order_is_charged_once_even_if_its_task_runs_again(
    http: TestClient, tasks: Harness, database: Session
) -> None:
    order = http.post("/orders", json=ROPE).json()
    tasks.run_until_idle()

    charge.enqueue(order_id=order["id"])
    tasks.run_until_idle()

    assert len(database.scalars(select(Charge)).all()) == 1
    tasks.assert_enqueued(send_email, number=1)


@pytest.mark.parametrize(("change", "status"), [({"quantity": 11}, 409), ({"product": "anchor"}, 404)])
def test_what_cannot_be_sold_leaves_nothing(
    change: dict[str, object], status: int, http: TestClient, tasks: Harness, database: Session
) -> None:
    assert http.post("/orders", json=ROPE | change).status_code == status

    tasks.assert_not_enqueued(charge)
    assert database.scalars(select(Order)).all() == []


def test_a_declined_card_is_not_tried_again(http: TestClient, tasks: Harness) -> None:
    http.post("/orders", json=ROPE | {"product": "yacht", "quantity": 1})

    with pytest.raises(Declined, match="above the limit"):
        tasks.run_until_idle()

    tasks.run_until_idle(raise_errors=False)
    (task,) = tasks.tasks(charge, State.DEAD)
    assert task.attempt == 1


def test_stock_is_synchronised_every_ten_minutes(tasks: Harness, database: Session) -> None:
    tasks.run_for("10m")

    tasks.assert_enqueued(sync_stock, number=1)
    assert database.scalar(select(Product.stock).where(Product.name == "rope")) == 1000


def test_a_report_is_counted_drawn_and_sent(http: TestClient, tasks: Harness) -> None:
    for _ in range(3):
        http.post("/orders", json=ROPE)
    tasks.run_until_idle()

    started = http.post("/merchants/acme/reports", params={"email": "owner@acme.example"}).json()
    tasks.run_until_idle()

    assert http.get(f"/tasks/{started['id']}").json()["result"] == {"rope": "57.00"}
    (drawn,) = tasks.tasks(draw_report)
    assert drawn.as_dict()["result"].splitlines()[-1] == "in all                   57.00"
    tasks.assert_enqueued(send_email, {"to": "owner@acme.example"}, tenant="acme")


def test_a_task_that_does_not_exist_is_not_found(http: TestClient) -> None:
    assert http.get("/tasks/none").status_code == 404


def test_staff_sign_in_to_see_the_dashboard(http: TestClient) -> None:
    page = "/windlass/dashboard/queues"
    stranger = http.get(page, headers={"accept": "text/html"}, follow_redirects=False)
    assert stranger.headers["location"] == f"/login?next={page}"
    assert http.get("/login", auth=("ann", "a guess")).status_code == 401

    seen = http.get("/login", params={"next": page}, auth=("ann", "only-for-this-example"))

    assert seen.url.path == page
    assert "orders" in seen.text
