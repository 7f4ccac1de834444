"""A small shop: charge, pack and ship an order; then fix and replay a task that died.

python shop.py      # creates shop.db in this directory
"""

import asyncio

import msgspec

from windlass import (
    INJECTED,
    RESULT,
    App,
    Backoff,
    By,
    Context,
    Fatal,
    Filter,
    Retry,
    State,
    WorkerSettings,
    chain,
)

app = App("sqlite:///shop.db", backoff=Backoff(base=0.05, max_attempts=3))
app.queue("packing", ageing="10m")

ADDRESSES = {"Ada": "12 Analytical Street"}
CHARGED: dict[str, int] = {}


class Item(msgspec.Struct):
    """An ordered item."""

    name: str
    grams: int


@app.task(name="shop.charge", priority="high", secret=["card"])
def charge(card: str, pence: int, *, ctx: Context = INJECTED) -> str:
    if ctx.attempt == 1:
        raise Retry("the bank is busy", after=0.05)
    # The key is the same in every attempt, so the bank charges once however often it is asked.
    CHARGED.setdefault(ctx.idempotency_key("charge"), pence)
    return f"{pence} pence from the card that ends in {card[-4:]}"


@app.task(name="shop.pack", queue="packing", timeout="5s")
async def pack(item: Item) -> int:
    await asyncio.sleep(0.01)
    return item.grams


@app.task(name="shop.weigh", queue="packing")
def weigh(parcels: list[int]) -> int:
    return sum(parcels)


@app.task(name="shop.ship")
def ship(customer: str) -> str:
    if customer not in ADDRESSES:
        raise Fatal(f"no address for customer {customer}")
    return f"on its way to {ADDRESSES[customer]}"


def main() -> None:
    order = app.sync_client.enqueue(
        chain(charge.step(card="4111 1111 1111 1111", pence=1999), ship.step(customer="Ada")),
        idempotency_key="order-1",
    )
    *_, total = app.sync_client.enqueue_group(
        [pack.step(item=Item("rope", 400)), pack.step(item=Item("hook", 250))],
        then=weigh.step(parcels=RESULT),
    )
    lost = ship.enqueue(customer="Aad")
    (shipping,) = order.following
    work_until_ended(order.id, shipping, total.id, lost.id)

    print("charged", order.result())
    print("once:", list(CHARGED.values()) == [1999])
    print("packed", total.result(), "grams")
    print("shipped,", app.sync_client.get(shipping).result())

    dead = lost.task()
    assert dead.state is State.DEAD
    assert dead.error is not None
    print("dead:", dead.error.message)
    mended = msgspec.json.encode({"customer": "Ada"})
    clerk = By(who="clerk", why="a typing error in the name")
    app.sync_operator.replay(Filter(ids=(lost.id,)), by=clerk, payload=mended)
    work_until_ended(lost.id)
    print("replayed,", lost.result())


def work_until_ended(*task_ids: str) -> None:
    """Run a worker in this process until these tasks have ended; usually `windlass worker shop:app` does."""

    async def work() -> None:
        worker = app.worker(WorkerSettings(slots=4))
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            for task_id in task_ids:
                await (await app.client.get(task_id)).wait(timeout=10)
            worker.stop()

    asyncio.run(work())


if __name__ == "__main__":
    main()
