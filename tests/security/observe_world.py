"""A store with canaries in everything that comes from a payload, a result or a text; served in every way."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from msgspec import Raw

from tests.dashboard.person import Person
from tests.http.api_client import Api
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.endpoints import Endpoints
from windlass._client.keys import Keys
from windlass._dashboard.site import Site
from windlass._dashboard.view import DashboardSettings
from windlass._http.app import Api as Served
from windlass._ids import new_id
from windlass._model.alert import AlertNotice, AlertState, DeadLetter, Turn
from windlass._model.filter import Filter, Page
from windlass._model.lease import Claim, Heartbeat
from windlass._model.options import DeclaredType, Defaults
from windlass._model.record import Declaration, Worker
from windlass._model.schedule import Schedule
from windlass._model.task import Error, NewTask, Progress, Task
from windlass._model.verdict import Bury, Complete, Postpone, Reason, Settlement
from windlass._policy.input.chain import Step, encode_steps
from windlass._store.protocol import Store
from windlass.http import Access

CANARY = re.compile(r"7c4fwren-[a-z]*")
WAYS = (
    "payload", "name", "key", "result", "resultname", "error", "traceback", "errortype", "notes", "progress",
    "outcome", "reason", "step", "nested", "group", "schedule", "scheduled", "limit", "endpoint", "audit",
    "discarded", "edited", "letter",
)  # fmt: skip
"""What has a canary; an ordinary key sees each of them somewhere."""

OPERATOR = ("observe", "operate")
KEYS = {
    "operator": OPERATOR,
    "observer": ("observe",),
    "reader": ("read", "operate"),
    "admin": ("admin",),
}
_HOUR = timedelta(hours=1)


def canary(way: str) -> str:
    assert way in WAYS
    return f"7c4fwren-{way}"


def hits(text: str) -> set[str]:
    """The ways whose canaries occur in a text."""
    return {one.removeprefix("7c4fwren-") for one in CANARY.findall(text)}


PAYLOAD = {"who": canary("limit"), canary("name"): {"deep": [canary("payload")]}, "card": "4711-0815"}


class World:
    """The store, the server, and keys of it."""

    def __init__(self, server: ApiServer, store: Store, http: httpx2.AsyncClient) -> None:
        self.server, self.store, self.http = server, store, http
        self.served = store.another()
        self.url = server.serve(self.served, dashboard=DashboardSettings())
        self.keys: dict[str, str] = {}
        self.tasks: dict[str, Task] = {}
        self.derived: set[str] = set()  # digests of payloads and texts, which a guess could be compared with

    async def fill(self) -> None:
        keys = Keys(self.store)
        for name, scopes in KEYS.items():
            self.keys[name] = (await keys.create(name, scopes=scopes)).text
        api = self.api("admin")
        await self.store.put(DeclaredType(name="shop.pay", defaults=Defaults(secret=("card",))))
        await api.good("PUT", "/limits/by-who", {"by": "who", "running": 9, "rate": 100, "all": True})
        await self._run_tasks(api)
        await self._make_records(api)
        self.tasks = {one.id: one for one in (await self.store.find(Filter(), Page(limit=1000))).items}
        self.derived |= {
            text for one in self.tasks.values() for text in (one.failure, one.fingerprint) if text
        }

    async def _run_tasks(self, api: Api) -> None:
        step = {"type": "t", "payload": {"x": canary("step")}}
        steps = [{**step, "next": [{"type": "t", "payload": {"x": canary("nested")}}]}]
        later = {"delay": 3600, "queue": "later"}
        await api.enqueue(payload=PAYLOAD, idempotency_key=canary("key"), next=steps, unique=True, **later)
        gone = await api.enqueue(payload=PAYLOAD, **later)
        await api.good("DELETE", f"/tasks/{gone}?why={canary('reason')}")
        member = {"type": "t", "payload": {"x": canary("group")}, **later}
        then = {"type": "t", "result_into": "account"}
        await api.good("POST", "/tasks/batch", {"tasks": [member, member], "then": then})
        result = {canary("resultname"): {"number": "4711-0815"}, "text": canary("result")}
        await self._settle(api, Complete(result=json.dumps(result).encode()), type="shop.pay")
        self.dead = [
            await self._settle(api, Bury(error=error), type="shop.pay")
            for error in (
                Error(type="Declined", message=canary("error"), traceback=canary("traceback")),
                Error(type="Declined", message=f"another {canary('error')} of other words"),
                Error(type=f"No {canary('errortype')}", message="it broke"),
            )
        ]
        again = Postpone(delay=_HOUR, reason=Reason.RETRY, error=Error(type="Busy", message=canary("error")))
        await self._settle(api, again, type="shop.pay")
        await self._claim(api, type="shop.pay")
        bad = Error(type="Boom", message=canary("discarded"))
        lost = await self._settle(api, Bury(error=bad), type="shop.gone", payload={"x": canary("discarded")})
        await api.good("DELETE", f"/dead/{lost}?why={canary('audit')}")
        edited = await self._settle(api, Bury(error=bad), type="shop.edit")
        await api.good("POST", f"/tasks/{edited}/replay", {"payload": {"x": canary("edited")}})

    async def _make_records(self, api: Api) -> None:
        schedule = {"type": "t", "rule": "0 0 1 1 *", "payload": {"x": canary("schedule")}}
        await api.good("PUT", "/schedules/nightly", schedule)
        await api.good("POST", "/schedules/nightly/trigger")
        payload = Raw(b'{"x": "%s"}' % canary("scheduled").encode())
        next_step = Step(id=new_id(), type="t", payload=payload)
        chained = Schedule(name="chained", type="t", every=_HOUR, next=encode_steps((next_step,)))
        await self.store.put(chained)
        url = f"https://{canary('endpoint')}.example/x"
        disabled = await Endpoints(self.store).disable(url, task_id=self.dead[0])
        self.endpoint = disabled.name
        declared = Declaration(name="schedule/nightly", body='{"sha256": "b0d1e5"}')
        await self.store.put(declared)
        self.derived |= {disabled.name, "b0d1e5"}
        await api.good("PUT", "/alerts/dead", {"count": 1})
        at = datetime.now(UTC)
        letter = DeadLetter(id=self.dead[2], type="shop.pay", queue="q", error=f"No {canary('letter')}")
        notice = AlertNotice(id=new_id(), turn=Turn.RAISED, number=3, at=at, raised_at=at, letters=(letter,))
        await self.store.put(AlertState(name="dead", raised_at=at, number=3, unsent=(notice,)))
        await api.good("PUT", "/quotas/acme", {"tasks": 9})
        await api.good("PATCH", "/queues/later", {"fairness": "fifo"})

    async def _claim(self, api: Api, **task: Any) -> tuple[Any, str]:
        """A task that a worker has claimed, and has told its progress."""
        queue = f"q{new_id()[-12:]}"
        made = await api.enqueue(**{"payload": PAYLOAD, "queue": queue, **task})
        session = new_id()
        worker = Worker(name="w", queues=(queue,), slots=1)
        await self.store.heartbeat(
            Heartbeat(session=session, worker=worker, lease_for=_HOUR, opening=True, held=())
        )
        (claimed,) = await self.store.claim(Claim(session=session, queues=(queue,), limit=1, number=1))
        return claimed.lease, made

    async def _settle(self, api: Api, verdict: Any, **task: Any) -> str:
        lease, made = await self._claim(api, **task)
        settlement = Settlement(
            lease=lease,
            verdict=verdict,
            outcome=f"ended {canary('outcome')}",
            progress=Progress(fraction=0.5, message=canary("progress")),
            notes=json.dumps({"told": canary("notes")}).encode(),
        )
        settled = await self.store.settle([settlement])
        assert [str(one) for one in settled.receipts] == ["applied"]
        return made

    async def damage(self) -> None:
        """Store a task whose payload is no JSON; only some stores take it."""
        new = NewTask(id=(made := new_id()), root=made, type="t", payload=canary("payload").encode())
        await self.store.enqueue([new])
        self.tasks[made] = (await self.store.find(Filter(ids=(made,)), Page(limit=1))).items[0]

    def api(self, key: str) -> Api:
        """The API, asked with a key of this name."""
        return Api(self.http, self.url, self.keys[key])

    async def signed_in(self, key: str) -> Person:
        """Someone who is signed in to the dashboard with a key of this name."""
        person = Person(self.http, f"{self.url}/dashboard/")
        assert (await person.sign_in(self.keys[key])).status_code == 303
        return person

    def resolved(self, *scopes: str) -> Person:
        """Someone whom the program around the dashboard knows."""
        api = Served(App(self.served))
        site = Site(api, resolve=lambda _request: Access("ann", scopes=scopes))
        return Person(self.http, f"{self.server.serve_asgi(site)}/dashboard/")

    async def close(self) -> None:
        self.server.close(self.served)
