"""Two stores that differ in one thing: in one of them other people have tasks, records and keys, too."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from msgspec import Struct

from tests.http.api_client import Api
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.keys import Keys
from windlass._dashboard import view
from windlass._dashboard.view import DashboardSettings
from windlass._http import auth, service
from windlass._http.bounds import quotas, tenant_queues
from windlass._model.filter import By, Filter, Page
from windlass._model.key import Scope
from windlass._observe import cached_reads
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.clock import ManualClock

EVENTS = "text/event-stream"
CANARY = "HIDDEN"
"""It is in what others have, and in no request."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TRACE = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]|(?<=<code>)[0-9a-f]{32}\b")
_SHORT_ID = re.compile(r"…[0-9a-f]{8}\b")
_TOKEN = re.compile(r"[0-9a-f]{64}")
_SESSION = re.compile(r"\w{12}\.ID")
_KEY = re.compile(r"key \w{12} \(")
_HEADERS = ("content-type", "location", "link", "idempotency-replayed", "retry-after", "allow", "ratelimit")

UNCACHED: dict[Any, dict[str, Any]] = {
    view: {"SOON": 10.0},
    auth: {"FRESH_FOR": 0.0, "MISSING_FOR": 0.0},
    service: {"_OVERVIEW_AGE": timedelta(0), "_HISTORY_AGE": timedelta(0), "_CHECK_AGE": timedelta(0)},
    cached_reads: {"_SHARE": 1},
    quotas: {"READ_EVERY": 0.0, "COUNT_EVERY": 0.0, "_SHARE": 0},
    tenant_queues: {"_READ_EVERY": 0.0, "_SHARE": 0, "_STORED_AFTER": 0.0},
}
"""What makes a server read the store for each request, and wait: else answers differ by age and load."""


class Bounds(Struct, frozen=True):
    """What a key is bound to, and where the tasks are that it must not know of."""

    name: str
    key: dict[str, Any]
    others: dict[str, str]


TENANT = Bounds("tenant", {"tenant": "acme"}, {"tenant": "FOREIGN-bob", "queue": "FOREIGN-queue"})
SHARED = Bounds("shared queue", {"tenant": "acme"}, {"tenant": "FOREIGN-bob", "queue": "mail"})
QUEUE = Bounds("queue", {"queues": ["mail"]}, {"tenant": "acme", "queue": "FOREIGN-queue"})
THEIRS = {"type": "FOREIGN.t", "payload": {"x": "FOREIGN payload"}}
OURS = {"type": "t", "queue": "mail", "tenant": "acme"}


class Side:
    """One of the stores, served, with a key that is bound and one that is not."""

    def __init__(
        self, api: ApiServer, http: httpx2.AsyncClient, bounds: Bounds, file: Path | None = None
    ) -> None:
        """Serve a store in memory, or in this file: then through a connection of the server's own."""
        self.bounds = bounds
        self.http = http
        self.clock = ManualClock()
        self.store: Store = MemoryStore(clock=self.clock)
        served = self.store
        if file is not None:
            self.store, served = (SQLiteStore(file, clock=self.clock) for _ in range(2))
        self.url = api.serve(served, dashboard=DashboardSettings())
        self.own: dict[str, str] = {}
        self.theirs: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self._beyond: list[dict[str, Any]] = []

    async def fill(self, *, with_others: bool) -> None:
        await self.store.open()
        self.keys["whole"] = (await Keys(self.store).create("whole", scopes=[Scope.ADMIN])).text
        made = await Keys(self.store).create("own", scopes=[Scope.ADMIN], **self.bounds.key)
        self.keys["bound"] = made.text
        self.whole = Api(self.http, self.url, self.keys["whole"])
        if with_others:
            await self._fill_with_others()
            at = self.bounds.others
            self._beyond = [{**THEIRS, **at, "payload": {"HIDDEN": 1}, "next": [{**OURS, "type": "later"}]}]
        self.own["dead"] = await self.whole.die(**OURS, next=self._steps())
        self.own["done"] = await self.whole.enqueue(
            **OURS, priority=100, next=self._steps(), payload={"x": "ours"}, idempotency_key="ours-once"
        )
        session = await self.whole.session("mail")
        (claimed,) = await self.whole.claim(session, 1, "mail")
        done = {"id": self.own["done"], "fence": claimed["fence"], "outcome": "returned", "result": 1}
        assert await self.whole.settle(done) == ["applied"]
        await self.renew()

    def _steps(self) -> list[dict[str, Any]]:
        """What follows a task of ours: one of ours, and one of others if there are any."""
        return [OURS, *self._beyond]

    async def renew(self) -> None:
        """Tasks of our own to act on, in place of those that were acted on."""
        self.own["ready"] = await self.whole.enqueue(**OURS, payload={"x": "ours"}, next=self._steps())
        self.own["session"] = await self.whole.session("mail")
        self.clock.advance(10)

    async def _fill_with_others(self) -> None:
        at = self.bounds.others
        app, key = App(self.store), await Keys(self.store).create("HIDDEN", scopes=[Scope.ADMIN], **_key(at))
        unique = {"unique": True, "idempotency_key": "FOREIGN-once"}
        follows = [{**THEIRS, **at, "payload": {"HIDDEN": 1}}]
        self.theirs = {
            "ready": await self.whole.enqueue(**THEIRS, **unique, **at, next=follows),
            "late": await self.whole.enqueue(type="t", payload={"HIDDEN": 1}, **at, delay=999),
            "dead": await self._die(at),
            "session": await self.whole.session(at["queue"], name="FOREIGN-worker", host="HIDDEN"),
            "key": key.key.name,
        }
        operator = app.operator.acting_as(By(who="HIDDEN"))
        await operator.limits.set("FOREIGN-record", create=True, type="FOREIGN.t", running=5)
        await operator.quotas.set(at["tenant"], tasks=1_000) if at["tenant"] != "acme" else None
        gone = await operator.endpoints.disable(
            "FOREIGN-hook", tenant=at["tenant"], task_id=self.theirs["ready"]
        )
        await operator.alerts.add("FOREIGN-record", queue=at["queue"])
        await operator.schedules.put(
            await operator.schedules.make("FOREIGN-record", "t", "1h", b'{"HIDDEN":1}')
        )
        if at["queue"] != "mail":
            await operator.set_queue(at["queue"], fairness="random")
        (dead,) = (await self.store.find(Filter(ids=(self.theirs["dead"],)), Page())).items
        self.theirs |= {"failure": dead.failure or "", "endpoint": gone.name}

    async def _die(self, at: dict[str, str]) -> str:
        made = await self.whole.enqueue(**THEIRS, **at, priority=100)
        session = await self.whole.session(at["queue"])
        (claimed,) = await self.whole.claim(session, 1, at["queue"])
        error = {"type": "FOREIGN-error", "message": "FOREIGN broke", "traceback": "HIDDEN"}
        ended = {"outcome": "failed", "fatal": True, "error": error}
        assert claimed["id"] == made
        assert await self.whole.settle({"id": made, "fence": claimed["fence"]} | ended) == ["applied"]
        await self.whole.good("DELETE", f"/work/sessions/{session}")
        return made

    async def ask(self, method: str, path: str, key: str = "bound", **sent: Any) -> httpx2.Response:
        """Send a request; of a stream that goes on, read what comes first."""
        headers = {"authorization": f"Bearer {self.keys[key]}", **sent.pop("headers", {})}
        async with (
            asyncio.timeout(20),
            self.http.stream(method, f"{self.url}{path}", headers=headers, **sent) as response,
        ):
            if response.headers.get("content-type", "").startswith(EVENTS) and response.status_code == 200:
                response._content = await _first_event(response)
            else:
                await response.aread()
        return response

    def plain(self, response: httpx2.Response) -> tuple[int, str, dict[str, str]]:
        """A response without what is random: ids, and the names of keys and sessions."""
        told = {name: self._plain(response.headers[name]) for name in _HEADERS if name in response.headers}
        return response.status_code, self._plain(response.text), told

    def _plain(self, text: str) -> str:
        text = _SHORT_ID.sub("SHORT", _TOKEN.sub("TOKEN", text))
        text = _TRACE.sub("TRACE", _UUID.sub("ID", text.replace(self.url, "")))
        return _SESSION.sub("SESSION", _KEY.sub("key KEY (", text))

    async def their_state(self) -> bytes:
        """All that belongs to others, as it is."""
        where = self.bounds.others
        found = (
            await self.store.find(
                Filter(queues=(where["queue"],), tenants=(where["tenant"],)), Page(limit=1_000)
            )
        ).items
        attempts = [await self.store.attempts(task.id) for task in found]
        return msgspec.json.encode([found, attempts])


def _key(at: dict[str, str]) -> dict[str, Any]:
    return {"queues": [at["queue"]]} if at["tenant"] == "acme" else {"tenant": at["tenant"]}


async def _first_event(response: httpx2.Response) -> bytes:
    heard = b""
    async for part in response.aiter_bytes():
        heard += part
        if b"\n\n" in heard:
            break
    return heard
