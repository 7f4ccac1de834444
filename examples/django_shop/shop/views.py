"""Placing an order."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from .models import Order
from .tasks import ship


@csrf_exempt  # an example: a real shop checks it
@require_POST
def place(request: HttpRequest) -> JsonResponse:
    """Keep the order and have it shipped: both, or neither."""
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"], email=request.POST["email"])
        task = ship.enqueue(order_id=order.pk)
        if order.item == "anchor":
            transaction.set_rollback(True)
            return JsonResponse({"error": "no anchor in stock"}, status=409)
    return JsonResponse({"order": order.pk, "task": task.id}, status=201)
