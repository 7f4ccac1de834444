"""The web application: `uvicorn shop.api:api`. Staff find the dashboard at /windlass/dashboard/."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import RedirectResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.middleware.sessions import SessionMiddleware

from windlass import Handle, NotFound, Task
from windlass.http import Access, site

from .database import connected
from .models import Order, Product
from .settings import SECRET_KEY, STAFF_PASSWORD, WORKER
from .tasks import app, charge, report_for


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Open what requests need; in a small deployment, run tasks in this process as well."""
    async with connected() as sessions, app, app.worker() if WORKER else nullcontext():
        yield {"sessions": sessions}


async def transaction(request: Request) -> AsyncIterator[AsyncSession]:
    """Open a session that commits when the endpoint returns, and rolls back when it raises."""
    async with request.state.sessions.begin() as session:
        yield session


# Without scope="function", FastAPI would send the response before the commit.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]

api = FastAPI(title="Shop", lifespan=lifespan)
api.add_middleware(SessionMiddleware, secret_key=SECRET_KEY)


# -- orders ------------------------------------------------------------------------------------------------


class NewOrder(BaseModel):
    """What a customer sends."""

    merchant: str = Field(pattern=r"^[a-z0-9-]{1,50}$")
    product: str
    email: str
    quantity: int = Field(default=1, ge=1, le=100)


class PlacedOrder(BaseModel):
    """What a customer sees of an order."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    product: str
    total: Decimal
    paid_at: datetime | None


@api.post("/orders", status_code=201)
async def place(new: NewOrder, session: Transaction) -> PlacedOrder:
    """Keep the order and have it charged: both, or neither."""
    product = await session.get(Product, new.product, with_for_update=True)
    if product is None:
        raise HTTPException(404, f"there is no product {new.product!r}")
    if product.stock < new.quantity:
        raise HTTPException(409, f"not enough of {product.name} in stock")
    product.stock -= new.quantity
    total = product.price * new.quantity
    order = Order(merchant=new.merchant, product=product.name, email=new.email, total=total)
    session.add(order)
    await session.flush()  # gives the order its id
    await charge.using(within=session, tenant=new.merchant).aenqueue(order_id=order.id)
    return PlacedOrder.model_validate(order)


@api.get("/orders/{order_id}")
async def show_order(order_id: int, session: Transaction) -> PlacedOrder:
    """Show an order; it is paid some moments after it was placed."""
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, f"there is no order {order_id}")
    return PlacedOrder.model_validate(order)


# -- reports -----------------------------------------------------------------------------------------------


@api.post("/merchants/{merchant}/reports", status_code=202)
async def start_report(merchant: str, email: str, days: int = 30) -> Handle[Any]:
    """Have a report sent; the response has the ids of its tasks."""
    return await app.client.enqueue(report_for(merchant, email, days))


@api.get("/tasks/{task_id}")
async def show_task(task_id: str) -> Task:
    """Show how far a task is."""
    try:
        return await (await app.client.get(task_id)).task()
    except NotFound as error:
        raise HTTPException(404, str(error)) from error


# -- the dashboard, for staff ------------------------------------------------------------------------------


@api.get("/login")
async def login(
    request: Request,
    given: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())],
    next: str = "",  # noqa: A002
) -> RedirectResponse:
    """Sign in, by a dialogue of the browser, and go on to the page that was asked for."""
    if not secrets.compare_digest(given.password.encode(), STAFF_PASSWORD.encode()):
        raise HTTPException(401, "wrong password", {"WWW-Authenticate": "Basic"})
    request.session["staff"] = given.username
    return RedirectResponse(next if next.startswith("/windlass/") else "/windlass/dashboard/", 303)


async def staff(request: Request) -> Access | None:
    """Tell the dashboard who looks: whoever has signed in here."""
    name = request.session.get("staff")
    return None if name is None else Access(name, "operate")


api.mount("/windlass", site(app, resolve=staff, sign_in="/login"))
