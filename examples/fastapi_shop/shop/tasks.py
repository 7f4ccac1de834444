"""What the shop does in the background: `windlass worker shop.tasks`."""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from windlass import INJECTED, RESULT, App, Backoff, Context, Depends, Step, Task, chain, handlers

from .database import Sessions, connected
from .models import Order, Product
from .outside import Bank, Declined, supplied
from .settings import DATABASE, SMTP

logger = logging.getLogger(__name__)

app = App(DATABASE, backoff=Backoff(base=1, factor=3, max_attempts=8))
app.queue("orders", fairness="round_robin")  # a sale at one merchant does not delay the others
app.limit("merchant", queue="orders", by="tenant", running=4)
send_email = app.include(handlers.Email(sender="shop@example.org", smtp=SMTP, starttls="offered"))


# -- around the handlers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """What a worker has open; handlers find it in `ctx.state`."""

    sessions: Sessions
    bank: Bank


@app.lifespan
async def connections(_: App) -> AsyncIterator[State]:
    """Connect each worker process."""
    async with connected() as sessions:
        yield State(sessions, Bank(sessions))


@app.on_error
def report(task: Task, error: BaseException) -> None:
    """Tell the people on call; `windlass.integrations.sentry.attach(app)` does it with Sentry."""
    logger.error("%s of %s failed: %s", task.type, task.tenant or "the shop", error)


async def transaction(ctx: Context[State]) -> AsyncIterator[AsyncSession]:
    """Open a session that commits when the handler returns, and rolls back when it raises."""
    async with ctx.state.sessions.begin() as session:
        yield session


Transaction = Annotated[AsyncSession, Depends(transaction)]


# -- orders ------------------------------------------------------------------------------------------------


@app.task(queue="orders", timeout="30s", fatal=Declined)
async def charge(order_id: int, *, ctx: Context[State] = INJECTED, session: Transaction = INJECTED) -> None:
    """Charge an order, mark it paid, and have the receipt sent. It may run again after a crash."""
    order = await session.get_one(Order, order_id, with_for_update=True)
    if order.paid_at is not None:  # an earlier attempt got this far
        return
    await ctx.state.bank.charge(order.id, order.total, key=ctx.idempotency_key())
    order.paid_at = datetime.now(UTC)
    receipt = send_email.using(within=session, tenant=order.merchant)
    await receipt.aenqueue(
        to=order.email, subject=f"Order {order.id}", text=f"You have paid {order.total} for {order.product}."
    )


# -- stock -------------------------------------------------------------------------------------------------


@app.task(schedule="10m", timeout="1m")
async def sync_stock(*, session: Transaction = INJECTED) -> int:
    """Take over what the supplier has."""
    stock = await supplied()
    for name, number in stock.items():
        await session.execute(update(Product).where(Product.name == name).values(stock=number))
    return len(stock)


# -- reports -----------------------------------------------------------------------------------------------


@app.task(queue="reports")
async def count_sales(merchant: str, days: int, *, session: Transaction = INJECTED) -> dict[str, Decimal]:
    """Add up what a merchant has sold, by product."""
    since = datetime.now(UTC) - timedelta(days=days)
    query = (
        select(Order.product, func.sum(Order.total))
        .where(Order.merchant == merchant, Order.paid_at > since)
        .group_by(Order.product)
        .order_by(Order.product)
    )
    return dict((await session.execute(query)).all())


@app.task(queue="reports", process=True)
def draw_report(sales: dict[str, Decimal]) -> str:
    """Write the text of a report; in a process of its own, as drawing would keep a CPU busy."""
    lines = [f"{product:<20}{total:>10}" for product, total in sales.items()]
    return "\n".join([*lines, f"{'in all':<20}{sum(sales.values(), Decimal(0)):>10}"])


def report_for(merchant: str, email: str, days: int = 1) -> Step:
    """Return the chain that counts, draws and sends a report."""
    return chain(
        count_sales.using(tenant=merchant).step(merchant=merchant, days=days),
        draw_report.using(tenant=merchant).step(sales=RESULT),
        send_email.using(tenant=merchant).step(to=email, subject="Your sales", text=RESULT),
    )


app.schedule("report-acme", report_for("acme", "owner@acme.example"), "0 6 * * *", zone="Europe/Berlin")
