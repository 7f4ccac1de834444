"""Handlers run in the thread of the test, and in its transaction."""

import sqlite3
import threading
from contextlib import closing

import pytest

from windlass import INJECTED, App, Context
from windlass.testing.harness import NewHarness


@pytest.fixture
def app() -> App:
    return App("sqlite:///not-made-by-this-test.db")


def test_a_handler_sees_the_uncommitted_transaction_of_the_test(
    windlass_harness: NewHarness, app: App
) -> None:
    """sqlite3 refuses the use of a connection in another thread."""
    kit = windlass_harness(app)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE orders (id, shipped)")
        connection.commit()

        @app.task(name="ship")
        def ship(order_id: int, *, ctx: Context = INJECTED) -> None:
            assert ctx.once("shipped")
            connection.execute("UPDATE orders SET shipped = 1 WHERE id = ?", (order_id,))

        connection.execute("INSERT INTO orders VALUES (7, 0)")
        ship.using(within=connection).enqueue(order_id=7)
        assert kit.run_until_idle() == 1
        assert connection.in_transaction
        assert connection.execute("SELECT shipped FROM orders").fetchall() == [(1,)]


def test_several_slots_run_in_threads(windlass_harness: NewHarness, app: App) -> None:
    kit, threads = windlass_harness(app), set()
    together = threading.Barrier(2)

    @app.task(name="meet")
    def meet() -> None:
        together.wait(30)
        threads.add(threading.get_ident())

    meet.enqueue_many([{}, {}])

    assert kit.run_until_idle(slots=2) == 2
    assert threading.get_ident() not in threads
