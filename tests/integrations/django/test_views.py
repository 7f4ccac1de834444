"""The API and the dashboard in `urls.py`, under ASGI and WSGI."""

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.http import HttpRequest
from django.test import AsyncClient, Client
from django.test.utils import override_settings
from django.urls import include, path
from msgspec.structs import replace

from tests.integrations.django.shop_tasks import ship
from windlass.http import Access
from windlass.integrations.django import app
from windlass.integrations.django.test import in_memory

urlpatterns = [path("ops/windlass/", include("windlass.integrations.django.urls"))]

QUEUES = "/ops/windlass/dashboard/queues"
STREAM = {"accept": "text/event-stream"}


def by_header(request: HttpRequest) -> Access | None:
    name = request.headers.get("X-User")
    return None if name is None else Access(name, "operate")


@pytest.fixture(autouse=True)
def mounted() -> Iterator[None]:
    """The URLs, on a store in memory, with users that a header names."""
    before = app.settings
    app.settings = replace(before, access=f"{__name__}.by_header")
    with (
        override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"], LOGIN_URL="/login/"),
        in_memory(),
    ):
        yield
    app.settings = before


def test_a_user_sees_the_dashboard_and_acts() -> None:
    ship.enqueue(order="A1")
    client = Client(headers={"x-user": "ann"})
    page = client.get(f"{QUEUES}/default")
    assert page.status_code == 200
    text = page.content.decode()
    token = text.partition('name="token" value="')[2].partition('"')[0]

    done = client.post(
        f"{QUEUES}/default/pause",
        urlencode({"token": token, "why": "a test"}),
        content_type="application/x-www-form-urlencoded",
        headers={"origin": "http://testserver"},
    )

    assert done.status_code == 303, done.content.decode().partition("<main")[2]
    assert "paused" in client.get(f"{QUEUES}/default").content.decode().lower()


def test_others_are_led_to_the_login() -> None:
    response = Client().get(QUEUES, headers={"accept": "text/html"})

    assert (response.status_code, response["location"]) == (303, f"/login/?next={QUEUES}")


def test_the_api_takes_keys_only() -> None:
    assert Client().get("/ops/windlass/tasks", headers={"x-user": "ann"}).status_code == 401
    assert Client().get("/ops/windlass/healthz").status_code == 200


def test_under_wsgi_a_page_is_not_live() -> None:
    assert Client().get(f"{QUEUES}?live=1", headers={"x-user": "ann", **STREAM}).status_code == 204


async def test_under_asgi_a_page_is_live() -> None:
    response: Any = await AsyncClient().get(f"{QUEUES}?live=1", headers={"x-user": "ann", **STREAM})

    assert response["content-type"].startswith("text/event-stream")
    stream = aiter(response)
    async with asyncio.timeout(20):
        assert (await anext(stream)).startswith(b"data:")
    await stream.aclose()
