"""A Litestar application with a worker inside, whose tasks and requests fail."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, get, post
from litestar.params import FromPath
from litestar.testing import TestClient
from sentry_sdk.integrations.litestar import LitestarIntegration

from tests.integrations.frameworks.reported_tasks import app, charge, configure, fail_all, print_label


@asynccontextmanager
async def lifespan(_: Litestar) -> AsyncIterator[None]:
    async with app, app.worker():
        yield


@post("/charge")
async def start_charge() -> dict[str, Any]:
    return (await charge.aenqueue(order_id=7)).as_dict()


@post("/print")
async def start_print() -> dict[str, Any]:
    return (await print_label.aenqueue(order_id=7)).as_dict()


@get("/ended/{task_id:str}")
async def ended(task_id: FromPath[str]) -> dict[str, Any]:
    return (await (await app.client.get(task_id)).wait("30s")).as_dict()


@get("/broken")
async def broken() -> None:
    raise KeyError("broken")


if __name__ == "__main__":
    configure(LitestarIntegration())
    api = Litestar([start_charge, start_print, ended, broken], lifespan=[lifespan], logging_config=None)
    fail_all(TestClient(api, raise_server_exceptions=False))
