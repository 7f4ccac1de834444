"""A FastAPI application with a worker inside, whose tasks and requests fail."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.testclient import TestClient
from sentry_sdk.integrations.fastapi import FastApiIntegration
from sentry_sdk.integrations.starlette import StarletteIntegration

from tests.integrations.frameworks.reported_tasks import app, charge, configure, fail_all, print_label
from windlass import Handle, Task


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app, app.worker():
        yield


api = FastAPI(lifespan=lifespan)


@api.post("/charge")
async def start_charge() -> Handle[None]:
    return await charge.aenqueue(order_id=7)


@api.post("/print")
async def start_print() -> Handle[None]:
    return await print_label.aenqueue(order_id=7)


@api.get("/ended/{task_id}")
async def ended(task_id: str) -> Task:
    return await (await app.client.get(task_id)).wait("30s")


@api.get("/broken")
async def broken() -> None:
    raise KeyError("broken")


if __name__ == "__main__":
    configure(StarletteIntegration(), FastApiIntegration())
    fail_all(TestClient(api, raise_server_exceptions=False))
