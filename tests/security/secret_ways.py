"""A secret brought into an encrypted store in each way, beside a text of which nobody said that it is one."""

import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from tests.loops.workers import drained, tasks
from windlass import App, Backoff, By, Context, Filter, State, chain
from windlass._client.client import Handle
from windlass._encryption.keys import Keyring
from windlass._store.protocol import Capability
from windlass._stores.postgres.enqueue.copy import MIN_TASKS

RING = Keyring([("k1", b"1" * 32)])
PREFIX, PLAIN = "canary7f3a-", "plaintext7f3a-"
NUMBERS = 739_140_600_000  # and more: the secrets that are numbers
ODD = "\"quoted\" 'it' \\ \n<é>/"  # what texts that quote a secret spell otherwise


def payload(way: str) -> dict[str, Any]:
    """A payload with a secret in a declared field, and the same of a field that is not declared."""
    return {"card": f"{PREFIX}{way}-end", "note": f"{PLAIN}{way}-end"}


def odd_payload(way: str) -> dict[str, Any]:
    """The same with a secret that is spelled otherwise wherever it is quoted."""
    return {"card": f"{ODD}{PREFIX}{way}{ODD}-end", "note": f"{PLAIN}{way}-end"}


def program(store: Any, keyring: Keyring | None = RING) -> App:
    """A program whose handlers are careless with secrets."""
    app = App(store, encryption=keyring, backoff=Backoff(base=0, jitter=0))

    def tell(ctx: Context, card: Any, note: Any) -> None:
        ctx.progress(0.5, f"charging {card} {note}")
        ctx.note(told=card, text=f"{card} {note}", by={str(card): 1})

    @app.task(name="give", secret=["card"])
    async def give(card: Any, note: str, *, ctx: Context) -> dict[str, Any]:
        tell(ctx, card, note)
        return {
            "card": card,
            "other": card,
            "text": f"paid {card} {note}",
            "by": {str(card): 1},
            "all": [[card]],
            "sent": json.dumps({"c": card}),
            "shown": repr({"c": card}),
            "logged": json.dumps([repr({"c": card})], ensure_ascii=False),
        }

    @app.task(name="fail", secret=["card"], max_attempts=2)
    async def fail(card: Any, note: str, *, ctx: Context) -> None:
        tell(ctx, card, note)
        raise ValueError(f"declined {card} {note}", {card: 1})

    @app.task(name="nest", secret=["order.card"])
    async def nest(order: Any, *, ctx: Context) -> Any:
        tell(ctx, order["card"], order["note"])
        return {"order": order, "text": str(order)}

    @app.task(name="pass")
    async def pass_on(taken: Any = None, *, ctx: Context) -> Any:
        tell(ctx, taken, json.dumps(taken))
        return {"passed": taken, "text": f"got {taken}", "sent": json.dumps(taken, ensure_ascii=False)}

    @app.task(name="alone", secret=["card"], unique=True)
    async def alone(card: str, note: str) -> None: ...

    @app.task(name="book", secret=["card"], max_attempts=1)
    async def book(card: str, note: str, *, ctx: Context) -> None:
        async with ctx.transaction(result={"card": card, "text": f"{card} {note}"}):
            pass

    return app


class Bringer:
    """Brings secrets in, each in a way of its own."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.send = app.client.send

    def step(self, type_name: str, given: Mapping[str, Any] | None = None, **options: Any) -> Any:
        defaults = self.app.types[type_name].defaults
        return self.app.builder.step(type_name, json.dumps(given or {}).encode(), options, defaults)

    @property
    def taker(self) -> Any:
        return replace(self.step("pass"), result_into="taken")

    async def task(self, way: str) -> None:
        await self.send("give", payload(way))

    async def later(self, way: str) -> None:
        await self.send("give", payload(way), delay=3600)

    async def error(self, way: str) -> None:
        await self.send("fail", payload(way))

    async def failure(self, way: str) -> None:
        await self.send("fail", {"card": 1, "note": ""}, on_failure=self.step("give", payload(way)))

    async def waiting(self, way: str) -> None:
        first = self.step("pass", delay=3600)
        await self.app.client.enqueue(chain(first, self.step("give", payload(way))))

    async def passed(self, way: str) -> None:
        await self.app.client.enqueue(chain(self.step("give", payload(way)), self.taker, self.taker))

    async def group(self, way: str) -> None:
        member = self.step("give", payload(way))
        await self.app.client.enqueue_group([member, member], chain(self.taker, self.taker))

    async def after(self, way: str) -> None:
        first = await self.send("give", payload(way))
        await self.app.client.enqueue(self.taker, after=[first.id])

    async def schedule(self, way: str) -> None:
        await self.app.operator.schedules.add(way, "give", "0 3 * * *", payload(way))

    async def ticked(self, way: str) -> None:
        await self.app.operator.schedules.add(way, "give", "0 3 * * *", payload(way))
        await self.app.operator.schedules.trigger(way)
        await self.app.operator.schedules.pause(way)

    async def declared(self, way: str) -> None:
        steps = chain(self.step("pass"), self.step("give", payload(way)))
        self.app.schedule(way, steps, "1h")
        await self.app.publish()
        await self.app.operator.schedules.trigger(way)

    async def odd(self, way: str) -> None:
        await self.send("give", odd_payload(way))
        await self.send("fail", odd_payload(way))

    async def odd_passed(self, way: str) -> None:
        await self.app.client.enqueue(chain(self.step("give", odd_payload(way)), self.taker, self.taker))

    async def odd_group(self, way: str) -> None:
        member = self.step("give", odd_payload(way))
        await self.app.client.enqueue_group([member, member], chain(self.taker, self.taker))

    async def odd_after(self, way: str) -> None:
        first = await self.send("give", odd_payload(way))
        second = await self.app.client.enqueue(self.taker, after=[first.id])
        await self.app.client.enqueue(self.taker, after=[second.id])

    async def odd_failure(self, way: str) -> None:
        steps = chain(self.step("fail", odd_payload(way)), on_failure=self.taker)
        await self.app.client.enqueue(steps)

    async def nested(self, way: str) -> None:
        await self.send("nest", {"order": payload(way)})

    async def listed(self, way: str) -> None:
        await self.send(
            "give", payload(way) | {"card": [payload(way)["card"], {"deep": payload(way)["card"]}]}
        )

    async def number(self, way: str) -> None:
        await self.send("give", payload(way) | {"card": NUMBERS + 1})

    async def unique(self, way: str) -> None:
        await self.send("alone", payload(way), delay=3600)
        await self.send("give", payload(way), idempotency_key="k", delay=3600)

    async def cancelled(self, way: str) -> None:
        handle: Handle[Any] = await self.send("give", payload(way), delay=3600)
        await handle.cancel()

    async def copied(self, way: str) -> None:
        await self.app.client.enqueue_many([self.step("give", payload(way), delay=3600)] * MIN_TASKS)

    async def replayed(self, way: str) -> None:
        task_id = await self._dead({"card": 1, "note": ""})
        await self.app.operator.replay(Filter(ids=(task_id,)), by=By(who="ann"), payload=payload(way))

    async def discarded(self, way: str) -> None:
        task_id = await self._dead(payload(way))
        await self.app.operator.discard(Filter(ids=(task_id,)), by=By(who="ann", why="test"))

    async def revealed(self, way: str) -> None:
        handle = await self.send("give", payload(way))
        await self.app.operator.reveal([handle.id])

    async def booked(self, way: str) -> None:
        if Capability.JOIN in self.app.store.capabilities:
            await self.send("book", payload(way))
        else:
            await self.task(way)

    async def _dead(self, given: Mapping[str, Any]) -> str:
        handle = await self.send("fail", given)
        await drained(self.app)
        assert (await handle.state()) is State.DEAD
        return handle.id


WAYS = [name for name, found in vars(Bringer).items() if not name.startswith(("_", "step", "taker"))]


async def bring_in(app: App) -> None:
    """Bring a secret in by each way, and let workers do what there is."""
    await app.publish()
    bringer = Bringer(app)
    for way in WAYS:
        bring: Callable[[str], Awaitable[None]] = getattr(bringer, way)
        await bring(way)
    await drained(app)
    done = await tasks(app, State.COMPLETED)
    assert any(PREFIX in str(task.result) for task in done), "handlers got it as it was"


def forms(text: str) -> list[bytes]:
    """How bytes may have a text: as it is, in hexadecimal, in base64 at any place, in UTF-16."""
    raw = text.encode()
    found = [
        raw,
        raw.hex().encode(),
        raw.hex().upper().encode(),
        text.encode("utf-16-le"),
        text.encode("utf-16-be"),
    ]
    for shift in range(3):
        whole = b64encode(b"\0" * shift + raw)
        found.append(whole[4 * bool(shift) : -4].rstrip(b"="))
    return found


def has(data: bytes, text: str) -> bool:
    """Whether bytes have a text in any form."""
    return any(form in data for form in forms(text))


def hits(data: bytes) -> list[str]:
    """Secrets that occur in bytes, in whatever form, with what is around them."""
    looks = [re.escape(form) for form in forms(PREFIX)] + [str(NUMBERS)[:9].encode() + rb"\d{3}"]
    found = re.finditer(b"|".join(looks), data)
    return [repr(data[max(0, one.start() - 80) : one.end() + 80]) for one in found][:5]
