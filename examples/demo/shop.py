"""The demo's app: a small shop, written as a user of windlass would write it.

Workers run in the demo's folder, which holds the store and the logs. Every handler first logs its execution
there: evidence that does not depend on the store.
"""

import asyncio
import hashlib
import time
from pathlib import Path

from windlass import INJECTED, App, Backoff, Context

STORE = "shop.db"
EXECUTIONS = "executions.log"
SETTLEMENTS = "settlements.log"

app = App(f"sqlite:///{STORE}", backoff=Backoff(base=0.3, factor=2, cap=2, max_attempts=4))


def log_execution(ctx: Context) -> None:
    """Log this execution at once, so that the line exists even if the process is killed right after."""
    append(EXECUTIONS, f"{ctx.task_id} {ctx.fence} {ctx.attempt}")


async def work_for(seconds: float, ctx: Context) -> None:
    """Log this execution, then wait, as most tasks wait for something."""
    log_execution(ctx)
    await asyncio.sleep(seconds)


def append(name: str, line: str) -> None:
    """Append a line in one system call, so that lines of several processes do not mix."""
    with Path(name).open("ab", buffering=0) as log:
        log.write(f"{line}\n".encode())


class ProviderDown(Exception):
    """The payment provider does not respond; a retry may help."""


@app.task(name="send_receipt", queue="mail")
async def send_receipt(order: int, *, ctx: Context = INJECTED) -> None:
    """Wait for a mail server."""
    await work_for(0.05 + order % 7 * 0.02, ctx)


@app.task(name="resize_photo", queue="photos")
def resize_photo(photo: int, *, ctx: Context = INJECTED) -> str:
    """Block: as a plain function it runs in a thread, partly on the CPU."""
    log_execution(ctx)
    digest = hashlib.sha256(bytes(300_000) + photo.to_bytes(8, "big")).hexdigest()
    time.sleep(0.04 + photo % 5 * 0.02)
    return f"{digest[:12]}.webp"


@app.task(name="sync_inventory", queue="stock", priority="low")
async def sync_inventory(item: int, *, ctx: Context = INJECTED) -> int:
    """Query a slow warehouse."""
    await work_for(0.1 + item % 9 * 0.03, ctx)
    return item % 40


@app.task(name="charge_card", queue="payments", priority="high")
async def charge_card(order: int, *, ctx: Context = INJECTED) -> str:
    """Fail at first for every fourth order, for some twice."""
    await work_for(0.03, ctx)
    failures = 2 if order % 12 == 0 else 1 if order % 4 == 0 else 0
    if ctx.attempt <= failures:
        raise ProviderDown(f"no response for order {order}")
    return ctx.idempotency_key("charge")


@app.task(name="import_row", queue="imports")
async def import_row(row: int, price: str, *, ctx: Context = INJECTED) -> float:
    """Fail in every attempt if the price is not a number."""
    await work_for(0.02 + row % 3 * 0.01, ctx)
    return round(float(price), 2)


@app.task(name="collect_sales", queue="office")
async def collect_sales(week: int, *, ctx: Context = INJECTED) -> list[int]:
    """Begin a chain of three."""
    await work_for(0.1, ctx)
    return [week * 100 + day for day in range(7)]


@app.task(name="build_report", queue="office")
async def build_report(sales: list[int], *, ctx: Context = INJECTED) -> dict[str, int]:
    """Take the result of collect_sales."""
    await work_for(0.1, ctx)
    return {"days": len(sales), "total": sum(sales)}


@app.task(name="mail_report", queue="mail")
async def mail_report(report: dict[str, int], *, ctx: Context = INJECTED) -> str:
    """Take the result of build_report."""
    await work_for(0.05, ctx)
    return f"{report['total']} sold in {report['days']} days"


@app.task(name="publish_album", queue="photos")
async def publish_album(photos: list[str], *, ctx: Context = INJECTED) -> int:
    """Run once all photos of the album are resized, with their names."""
    await work_for(0.05, ctx)
    return len(photos)


@app.task(name="render_clip", queue="photos", priority="high")
async def render_clip(clip: int, *, ctx: Context = INJECTED) -> None:
    """Run long enough to be interrupted when the worker is killed or stopped."""
    log_execution(ctx)
    for tenth in range(20):
        ctx.progress(tenth / 20, f"clip {clip}")
        await asyncio.sleep(0.1)


@app.task(name="reprice_catalogue", queue="office", process=True, timeout="30s")
def reprice_catalogue(rounds: int, *, ctx: Context = INJECTED) -> str:
    """Use the CPU only: it runs in a child process, so the worker stays responsive."""
    log_execution(ctx)
    digest = b"catalogue"
    for _ in range(rounds):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()[:12]


@app.task(name="export_orders", queue="office")
async def export_orders(year: int, *, ctx: Context = INJECTED) -> None:
    """Take a minute; it is cancelled while it runs."""
    log_execution(ctx)
    for second in range(60):
        ctx.progress(second / 60, f"orders of {year}")
        await asyncio.sleep(1)


@app.task(name="send_newsletter", queue="mail", priority="low")
async def send_newsletter(reader: int, *, ctx: Context = INJECTED) -> None:
    """Run tomorrow; it is cancelled today."""
    await work_for(0.05 + reader % 3 * 0.01, ctx)


@app.task(name="clean_up", queue="office")
async def clean_up(*, ctx: Context = INJECTED) -> None:
    """Run a few seconds into the demo: the nightly cleanup."""
    await work_for(0.05, ctx)
