"""Ready-made handlers in a worker, and the same calls in bare asyncio."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from benchmarks.runs import probe
from windlass import App, WorkerSettings, handlers
from windlass._fetch import Fetcher
from windlass._policy.addresses import parse_networks
from windlass._worker.process import calm_collector
from windlass.alerts import sign
from windlass.handlers.email.message import Mail, parse_address
from windlass.handlers.email.smtp import SmtpProvider, SmtpServer
from windlass.handlers.settings import HandlerSettings

SECRET = "whsec_d2luZGxhc3MgaG9sZHMgaXRzIHRvbmd1ZSE="
SENDER = "shop@example.org"
LOOPBACK = ("127.0.0.1",)


def work(store: str, kind: str, number: int, slots: int, http: int, smtp: int) -> dict[str, Any]:
    """Run this many tasks of a handler in a worker; return the rate from its start to its end."""

    async def run() -> float:
        app = App(store, allow_addresses=LOOPBACK)
        settings: HandlerSettings
        if kind == "webhooks":
            settings = handlers.Webhooks(secret=SECRET, per_endpoint=slots)
            payloads: list[dict[str, Any]] = [
                {"endpoint": f"http://127.0.0.1:{http}/", "body": {"n": n}} for n in range(number)
            ]
        else:
            settings = handlers.Email(
                sender=SENDER, smtp=f"smtp://127.0.0.1:{smtp}", starttls="never", connections=slots
            )
            payloads = [{"to": f"a{n}@example.org", "subject": "hi", "text": "hello"} for n in range(number)]
        declared = app.include(settings)
        await app.open()
        await declared.aenqueue_many(payloads)
        calm_collector()
        started = time.perf_counter()
        await app.worker(WorkerSettings(slots=slots, drain=True)).run()
        taken = time.perf_counter() - started
        await app.close()
        return taken

    return {"rate": number / probe.looped(run())}


def bare(kind: str, number: int, slots: int, http: int, smtp: int) -> dict[str, Any]:
    """Make the calls of so many tasks in coroutines, as many at once as there would be slots."""

    async def run() -> float:
        calm_collector()
        started = time.perf_counter()
        await (_webhooks(number, slots, http) if kind == "webhooks" else _emails(number, slots, smtp))
        return time.perf_counter() - started

    return {"rate": number / probe.looped(run())}


async def _webhooks(number: int, slots: int, port: int) -> None:
    fetcher, url = Fetcher(parse_networks(LOOPBACK), deadline=20), f"http://127.0.0.1:{port}/"

    async def deliver(n: int) -> None:
        body = b'{"n":%d}' % n
        headers = sign(SECRET, body, message_id=f"message-{n}", at=int(time.time()))
        await fetcher.fetch(url, "POST", body=body, headers=headers, max_bytes=4096, cut=True)

    await _each(number, slots, deliver)


async def _emails(number: int, slots: int, port: int) -> None:
    server = SmtpServer.parse(f"smtp://127.0.0.1:{port}", None, None)
    provider = SmtpProvider(server, "never", slots, 30)

    async def send(n: int) -> None:
        to = parse_address(f"a{n}@example.org")
        mail = Mail(
            message_id=f"{n}@example.org",
            sender=parse_address(SENDER),
            to=(to,),
            subject="hi",
            text="hello",
            at=datetime.now(UTC),
        )
        await provider.send(mail, mail.recipients)

    await _each(number, slots, send)
    await provider.close()


async def _each(number: int, slots: int, call: Callable[[int], Awaitable[None]]) -> None:
    left = iter(range(number))

    async def caller() -> None:
        for n in left:
            await call(n)

    await asyncio.gather(*(caller() for _ in range(slots)))


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (work, bare)})
