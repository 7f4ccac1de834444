"""A Flask application in an ASGI server, with a worker inside, whose tasks and requests fail."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from a2wsgi import WSGIMiddleware
from flask import Flask
from sentry_sdk.integrations.flask import FlaskIntegration
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.integrations.frameworks.reported_tasks import app, charge, configure, fail_all, print_label
from windlass import Context

api = Flask(__name__)


@app.around
def in_app_context(ctx: Context) -> Iterator[None]:
    with api.app_context():
        yield


@api.post("/charge")
def start_charge() -> dict[str, Any]:
    return charge.enqueue(order_id=7).as_dict()


@api.post("/print")
def start_print() -> dict[str, Any]:
    return print_label.enqueue(order_id=7).as_dict()


@api.get("/ended/<task_id>")
def ended(task_id: str) -> dict[str, Any]:
    return app.sync_client.get(task_id).wait("30s").as_dict()


@api.get("/broken")
def broken() -> str:
    raise KeyError("broken")


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with app, app.worker():
        yield


if __name__ == "__main__":
    configure(FlaskIntegration())
    served = Starlette(routes=[Mount("/", WSGIMiddleware(api))], lifespan=lifespan)
    fail_all(TestClient(served, raise_server_exceptions=False))
