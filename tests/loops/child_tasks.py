"""Task types that run in child processes; at module level, where a child finds them."""

import asyncio
import ctypes
import logging
import os
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel

from windlass import App, Backoff, Context, Fatal, Retry, Snooze

app = App("memory://", backoff=Backoff(base=0, jitter=0))


class Declined(Exception):
    pass


@app.task(process=True)
def double(n: int, at: datetime | None = None) -> dict[str, Any]:
    return {"double": 2 * n, "year": at.year if at else None}


class Item(BaseModel):
    number: int


@dataclass
class Parcel:
    item: Item
    price: Decimal


@app.task(process=True)
def pack(parcel: Parcel, day: date) -> dict[date, Parcel]:
    return {day: parcel}


@app.task(process=True)
async def triple(n: int) -> int:
    await asyncio.sleep(0)
    return 3 * n


@app.task(process=True)
def pid() -> int:
    return os.getpid()


@app.task(process=True, max_attempts=1)
def fail(password: str) -> NoReturn:
    raise ValueError(f"cannot log in with {password}")


@app.task(process=True, max_attempts=3, fatal=(Declined,))
def steer(how: str) -> str:
    match how:
        case "retry":
            raise Retry("busy", after=60)
        case "snooze":
            raise Snooze(60)
        case "fatal":
            raise Fatal("hopeless")
        case "declared":
            raise Declined("not this card")
        case "exit":
            sys.exit(4)
        case "odd result":
            return object()  # type: ignore[return-value]
    return how


@app.task(process=True, max_attempts=1)
def die(how: str) -> None:
    match how:
        case "exit":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), 9)
        case "segfault":
            os.close(2)  # nobody wants to read its last words
            ctypes.string_at(0)
        case "deaf":
            os.closerange(3, 64)
            threading.Event().wait(30)


@app.task(process=True)
def wait(file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    threading.Event().wait(60)


@app.task(process=True)
def spawn_and_wait(file: str) -> None:
    grandchild = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait(60)"])
    Path(file).write_text(f"{os.getpid()} {grandchild.pid}")
    threading.Event().wait(60)


@app.task(process=True)
def escape(file: str) -> None:
    """Leave a process behind that is in a session of its own and has all that is open here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside threads
        grandchild = os.fork()
    if grandchild == 0:
        os.setsid()
        Path(file).write_text(str(os.getpid()))
        threading.Event().wait(60)
        os._exit(0)
    threading.Event().wait(60)


@app.task(process=True)
def talk(n: int) -> int:
    print("a line" * 1000)  # noqa: T201
    os.write(1, b"\0\0\0\5hello")
    assert sys.stdin.read() == ""
    return n


@app.task(process=True)
def report(file: str, *, ctx: Context) -> str:
    ctx.progress(0.25, "a quarter")
    while not Path(file).exists():
        threading.Event().wait(0.01)
    assert not ctx.stopping
    ctx.progress(1, "done")
    return f"{ctx.attempt} {ctx.task_id}"


@app.task(process=True, max_attempts=1)
def effect(what: str, *, ctx: Context) -> None:
    ctx.once("charge") if what == "once" else ctx.transaction()


@app.task(process=True, max_attempts=1)
def nap(seconds: float) -> None:
    threading.Event().wait(seconds)


@app.task(process=True, max_attempts=1)
def log(how: str, *, ctx: Context) -> None:  # noqa: C901, PLR0912 - one case for each test
    logger = logging.getLogger("shop.images")
    match how:
        case "every level":
            for level in ("debug", "info", "warning", "error"):
                getattr(logger, level)("%s of %d", level, 4, extra={"size": 7, "odd": {1, 2}})
            ctx.logger.info("by the context")
        case "exception":
            try:
                raise KeyError("lost")
            except KeyError:
                logger.exception("it failed")
        case "structlog":  # what its wrap_for_formatter passes to logging
            logger.warning({"event": "charged", "order_id": 7}, extra={"_logger": logger, "_name": "warning"})
        case "dicts":
            logger.warning({"user": 1})
            logger.warning({1: 1})
        case "odd":
            logger.info("a lone \ud800 surrogate", extra={"text": "\ud800", "big": 1 << 80})
            logger.info("too long: %s", "x" * 100_000, extra={"long": "y" * 100_000})
        case "own set-up":
            logging.basicConfig(level="ERROR", force=True)
            logger.warning("once")
        case "die":
            for n in range(200):
                logger.info("record %d", n)
            os._exit(7)
        case "flood":
            for n in range(20_000):
                logger.info("record %d %s", n, "z" * 200)
        case "fork":
            if os.fork() == 0:
                logger.info("from a fork")
                os._exit(0)
            os.wait()


@app.task(process=True, max_attempts=1)
def merge(accounts: list[dict[str, Any]]) -> NoReturn:
    raise ValueError(f"cannot merge {accounts}")


@app.task(process=True)
def reporting(password: str, *, ctx: Context) -> None:
    ctx.progress(0.5, f"trying {password}")


@app.task(process=True)
def noting(password: str, *, ctx: Context) -> None:
    ctx.note(response_code=401)
    ctx.note(url=f"/login?p={password}")


@app.task(process=True, secret=["account.pin.code"])
def log_secret(account: dict[str, Any], *, ctx: Context) -> None:
    log_everywhere(account["pin"]["code"], ctx)


def log_everywhere(secret: str, ctx: Context) -> None:
    """Log a secret in every way that a record can hold it."""
    logger = logging.getLogger("shop.images")
    logger.warning(
        "message %s", {"code": secret}, extra={"told": [secret, {secret: (7, secret)}], "odd": Odd(secret)}
    )
    logger.warning(f"format {secret}", stack_info=True)  # noqa: G004 - as programs do
    logger.warning("too few %s %s", secret)  # noqa: PLE1206
    ctx.logger.warning("context %s", secret)
    try:
        raise KeyError(secret)
    except KeyError:
        logger.exception("it failed")


class Odd:
    """A field that is not JSON."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return f"Odd({self._text})"


@app.task(secret=["code"])
async def open_account(code: str) -> dict[str, Any]:
    return {"pin": {"code": code}}


@app.task
async def log_taken(account: dict[str, Any], *, ctx: Context) -> None:
    log_everywhere(account["pin"]["code"], ctx)


@app.task(process=True, secret=["pin"])
def echo_pin(pin: str) -> dict[str, str]:
    return {"pin": pin, "said": f"it is {pin}"}
