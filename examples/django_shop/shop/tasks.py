"""What the shop does in the background."""

from django.core.mail import send_mail
from django.utils import timezone

from windlass import Context
from windlass.integrations.django import app

from .models import Order


@app.task(queue="mail", timeout=30)
def ship(order_id: int) -> None:
    """Ship an order, once, and tell the customer."""
    order = Order.objects.get(pk=order_id)
    if order.shipped_at is None:
        order.shipped_at = timezone.now()
        order.save()
    send_mail("Your order", f"We have shipped your {order.item}.", None, [order.email])


@app.task(process=True, timeout=60)
def draw_label(order_id: int) -> str:
    """Draw the label of a parcel, in a process of its own: it may crash, and it can be killed."""
    return f"To {Order.objects.get(pk=order_id).email}"


@app.task(schedule="0 3 * * *")
async def count_open_orders(ctx: Context) -> int:
    """Count the orders that have not been shipped."""
    number = await Order.objects.filter(shipped_at=None).acount()
    ctx.note(open_orders=number)
    return number
