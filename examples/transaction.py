"""An order and the task that ships it, in one SQLite transaction: both are stored, or neither.

python transaction.py      # creates orders.db in this directory
"""

import asyncio
import sqlite3

from windlass import App, WorkerSettings

DATABASE = "orders.db"

app = App(f"sqlite:///{DATABASE}")


@app.task(name="orders.ship")
def ship(order_id: int) -> str:
    connection = connect()
    try:
        (item,) = connection.execute("SELECT item FROM orders WHERE id = ?", (order_id,)).fetchone()
    finally:
        connection.close()
    return f"order {order_id}: {item}"


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(DATABASE, isolation_level=None)  # place_order begins transactions itself
    connection.execute("PRAGMA synchronous=EXTRA")  # a commit is on disk when it returns
    connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")
    return connection


def place_order(connection: sqlite3.Connection, item: str, *, in_stock: bool) -> str:
    connection.execute("BEGIN IMMEDIATE")  # take the write lock now, not at the first write
    try:
        order = connection.execute("INSERT INTO orders (item) VALUES (?)", (item,)).lastrowid
        assert order is not None
        handle = ship.using(within=connection).enqueue(order_id=order)
        if not in_stock:
            raise LookupError(f"no {item} in stock")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return handle.id


def main() -> None:
    app.setup()  # creates windlass's tables in orders.db
    connection = connect()
    shipped = place_order(connection, "rope", in_stock=True)
    try:
        place_order(connection, "anchor", in_stock=False)
    except LookupError as error:
        print("not placed:", error)
    connection.close()

    asyncio.run(app.worker(WorkerSettings(drain=True)).run())
    print("shipped", app.sync_client.get(shipped).result(timeout=5))
    print("tasks:", sum(count.number for count in app.sync_operator.count()))


if __name__ == "__main__":
    main()
