"""Tasks that fail, and all that tells of it: logs, error hooks, middleware, Sentry."""

import json
import logging
import os
import sys
from contextlib import AbstractContextManager
from typing import Any

import sentry_sdk

from windlass import INJECTED, App, CallNext, Context, Task
from windlass.integrations.sentry import attach
from windlass.logs import JsonFormatter

app = App("sqlite:///tasks.db")


@app.task(name="shop.charge", max_attempts=1)
async def charge(order_id: int, *, ctx: Context = INJECTED) -> None:
    ctx.logger.warning("charging order %d", order_id)
    raise ValueError(f"order {order_id} was declined")


@app.task(name="shop.print", max_attempts=1)
def print_label(order_id: int) -> None:
    raise OSError(f"no paper for order {order_id}")


@app.around
async def seen(ctx: Context, call_next: CallNext) -> None:
    tell(around=ctx.task.type)
    await call_next()


@app.on_error
def hook(task: Task, error: BaseException) -> None:
    tell(hook=task.type, error=type(error).__name__)


def tell(**facts: Any) -> None:
    """Print a line for the test that runs this program."""
    # One write: several threads and processes share the output.
    os.write(1, f"{json.dumps(facts)}\n".encode())


def configure(*integrations: Any) -> None:
    """Log JSON to stderr and report to the sink of the test, as a program of the framework does."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    sentry_sdk.init(dsn=os.environ["SINK"], auto_enabling_integrations=False, integrations=list(integrations))
    attach(app)


def fail_all(client: AbstractContextManager[Any]) -> None:
    """Have both tasks fail, and a request; stop the application; then send what Sentry still has."""
    with client as http:
        for path in ("/charge", "/print"):
            task_id = http.post(path).json()["id"]
            tell(task=path, state=http.get(f"/ended/{task_id}").json()["state"])
        tell(request=http.get("/broken").status_code)
    sentry_sdk.flush(timeout=30)
