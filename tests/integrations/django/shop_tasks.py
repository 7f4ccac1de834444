"""The tasks of a Django project, imported when Django is set up. A group stands for an order."""

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connections

from windlass.integrations.django import app

used: list[Any] = []
"""The connections of Django that handlers have used."""


@app.task
def ship(order: str) -> int:
    used.append(connections["default"])
    return Group.objects.get(name=order).pk


@app.task
async def ship_async(order: str) -> int:
    found = await Group.objects.aget(name=order)
    used.append(await sync_to_async(lambda: connections["default"])())
    return found.pk
