"""Declared types as type checkers see them: what is marked is a mistake that they find. Never run."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, assert_type

from msgspec import Struct
from pydantic import BaseModel

from windlass import INJECTED, RESULT, App, Context, Handle, Step, SyncHandle, Task, chain

app = App("memory://")


class Item(BaseModel):
    sku: str
    price: Decimal


@dataclass
class Address:
    city: str


class Receipt(Struct):
    total: Decimal
    at: datetime


@app.task(queue="bank", secret=["card"])
async def charge(items: list[Item], to: Address | None = None, *, ctx: Context = INJECTED) -> Receipt:
    ctx.progress(0.5, "half")
    return Receipt(total=sum((item.price for item in items), Decimal(0)), at=datetime.now(UTC))


@app.task
def ship(receipt: Receipt, boxes: dict[int, Address]) -> Item | None:
    return None


ROPE = Item(sku="rope", price=Decimal(9))
HOME = Address(city="Bern")


def arguments_are_those_of_the_handler() -> None:
    charge.enqueue([ROPE], to=HOME)
    charge.enqueue(items=[ROPE])
    ship.enqueue(Receipt(total=Decimal(1), at=datetime.now(UTC)), boxes={1: HOME})
    charge.enqueue(items=[HOME])  # type: ignore[list-item]
    charge.enqueue(items=ROPE)  # type: ignore[arg-type]
    charge.enqueue(item=[ROPE])  # type: ignore[call-arg]
    charge.enqueue([ROPE], to="Bern")  # type: ignore[arg-type]
    ship.enqueue(Receipt(total=Decimal(1), at=datetime.now(UTC)), boxes={"1": HOME})  # type: ignore[dict-item]
    ship.enqueue(boxes={})  # type: ignore[call-arg]


async def results_are_those_of_the_handler() -> None:
    handle = await charge.using(delay="5m", priority="high").aenqueue([ROPE])
    assert_type(handle, Handle[Receipt])
    receipt = await handle.result(timeout=10)
    assert_type(receipt, Receipt)
    assert_type(ship.enqueue(receipt, boxes={}), SyncHandle[Item | None])
    assert_type((await charge.aenqueue_many([{"items": [ROPE]}]))[0], Handle[Receipt])
    receipt.sum  # type: ignore[attr-defined]
    text: str = await handle.result()  # type: ignore[assignment]
    handle.result().total  # type: ignore[attr-defined]


async def documents_are_dictionaries(handle: Handle[Receipt]) -> None:
    task = await handle.task()
    assert_type(task, Task)
    assert_type(task.as_dict(), dict[str, Any])
    assert_type(dict(task), dict[str, Any])
    assert_type(handle.to_json(), str)
    task.as_json()  # type: ignore[attr-defined]


def steps_are_checked_like_calls() -> None:
    assert_type(chain(charge.step([ROPE]), ship.step(receipt=RESULT, boxes={})), Step)
    charge.step([HOME])  # type: ignore[list-item]
    chain(charge)  # type: ignore[arg-type]


def a_decorated_function_stays_a_function(receipt: Receipt) -> None:
    assert_type(ship(receipt, {}), Item | None)
