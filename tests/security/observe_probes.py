"""Every way to ask a server: operations, verbs of the store protocol, pages, streams and commands."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx2
from click.testing import CliRunner
from msgspec import Struct

from tests.dashboard.person import Person
from tests.dashboard.test_security import FIELDS, plain
from tests.examples import FULL
from tests.http.test_auth_matrix import ASKED
from tests.security.observe_world import World
from tests.security.test_canary import COMMANDS
from windlass import Filter, Page
from windlass._cli.root import root
from windlass._dashboard.screens import ALL
from windlass._http.app import OPERATIONS
from windlass._http.operation import Operation
from windlass._ids import new_id
from windlass._model.filter import (
    Action,
    By,
    CancelTasks,
    Dimension,
    Discard,
    Expire,
    Replay,
    Reveal,
    Rewrite,
)
from windlass._model.key import Scope
from windlass._model.lease import Claim, Heartbeat, Lease
from windlass._model.queue import Retention
from windlass._model.record import Worker
from windlass._model.schedule import Schedule
from windlass._model.task import NewTask
from windlass._store import messages
from windlass._store.json_codec import encode
from windlass._store.messages import Request

EVENTS = "text/event-stream"
_MINUTE = timedelta(minutes=1)


class Answer(Struct, frozen=True):
    """What was asked, and what came."""

    asked: str
    status: int
    text: str


async def ask(
    http: httpx2.AsyncClient,
    method: str,
    url: str,
    *,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Ask; of a stream that goes on, what comes first."""
    sent: dict[str, Any] = (
        {} if body is None else {"content": body} if isinstance(body, bytes) else {"json": body}
    )
    told = {"content-type": "application/json"} if isinstance(body, bytes) else {}
    async with (
        asyncio.timeout(30),
        http.stream(method, url, headers=told | (headers or {}), **sent) as response,
    ):
        if response.headers.get("content-type", "").startswith(EVENTS):
            text = (await anext(response.aiter_bytes())).decode()
        else:
            text = (await response.aread()).decode()
        text += str(response.headers)
    return Answer(f"{method} {url.partition('/dashboard')[1]}{url[-90:]}", response.status_code, text)


# -- operations --------------------------------------------------------------------------------------


def paths(world: World, path: str) -> Iterator[str]:
    """A path with each name that its parameter can have."""
    names = {
        "{id}": [*world.tasks],
        "{queue}": ["later", *sorted({one.queue for one in world.tasks.values()} - {"later"})[:3]],
        "{tenant}": ["acme"],
        "{key}": ["0" * 12],
    }
    named = {
        "/limits": ["by-who"], "/schedules": ["nightly", "chained"], "/alerts": ["dead"],
        "/types": ["shop.pay"], "/endpoints": [world.endpoint], "/work": ["none"],
    }  # fmt: skip
    names["{name}"] = named.get("/" + path.split("/")[1], ["none"])
    parameter = next((one for one in names if one in path), None)
    for name in [""] if parameter is None else names[parameter]:
        yield path.replace(parameter or "\0", quote(name, safe=""))


async def operations(world: World, key: str, *, change: bool) -> AsyncIterator[Answer]:
    """Every operation that changes something, or every other one; those that delete come last."""
    for one in sorted(OPERATIONS, key=lambda one: one.method == "DELETE"):
        if (one.method != "GET") is change:
            async for answer in operation(world, key, one):
                yield answer


async def operation(world: World, key: str, one: Operation) -> AsyncIterator[Answer]:
    """An operation, on each thing that it can be asked about, with and without `reveal`."""
    asking = ASKED[one.name]
    headers = {"authorization": f"Bearer {world.keys[key]}", "content-type": asking.kind}
    parameters = {*getattr(one.query, "__struct_fields__", ())}
    queries = [asking.query]
    queries += ["?reveal=true"] if "reveal" in parameters else []
    for path in paths(world, one.path):
        for query in queries:
            url = f"{world.url}{path}{query}"
            yield await ask(world.http, one.method, url, body=asking.body, headers=headers)


# -- the protocol of stores --------------------------------------------------------------------------


def requests(world: World) -> list[Request[Any]]:
    """Requests of every verb: each action, each kind of record, the attempts of each task."""
    by, page, lease = By(who="x", why="x"), Page(limit=1000), Lease(next(iter(world.tasks)), 1)
    claim = Claim(session="s", queues=("later",), limit=1, number=1)
    beat = Heartbeat(session="s", worker=Worker(name="w"), lease_for=_MINUTE, opening=True)
    task = NewTask(id=(made := new_id()), root=made, type="t", payload=b"{}")
    schedule = Schedule(name="nightly", type="t", cron="0 0 1 1 *")
    tasks: tuple[Action, ...] = (CancelTasks(by=by), Replay(by=by), Discard(by=by), Expire())
    others: tuple[Action, ...] = (Reveal(by=by), Reveal(by=by, subject="x"), Rewrite(by=by, tasks=()))
    kinds = messages.RECORD_TYPES
    return [
        messages.AboutRequest(),
        messages.FindRequest(Filter(), page),
        messages.FindRequest(Filter(ids=(*world.tasks,)), page),
        *(messages.CountRequest(Filter(), (one,), sized=True) for one in Dimension),
        messages.CountRequest(Filter(), (*Dimension,)),
        messages.EndedRequest((*world.tasks,)),
        *(messages.AttemptsRequest(one) for one in world.tasks),
        *(messages.RecordsRequest(kind, page) for kind in kinds),
        *(messages.RecordsRequest(kind, Page(limit=1)) for kind in kinds),
        messages.CheckRequest(),
        messages.EnqueueRequest((task,)),
        messages.ClaimRequest(claim),
        messages.SettleRequest((), claim),
        messages.HeartbeatRequest(beat),
        messages.OnceRequest(lease, "x"),
        messages.LeadRequest("x", _MINUTE),
        messages.PromoteRequest(1),
        messages.RescueRequest("s", 1),
        messages.PutRequest("schedule", encode(schedule)),
        messages.RemoveRequest("endpoint", world.endpoint),
        *(messages.RemoveRequest(kind, "none") for kind in kinds),
        *(messages.ApplyRequest(action, Filter(types=("shop.pay",)), 2) for action in (*others, *tasks)),
        messages.PruneRequest(Retention(), 1, by),
    ]


async def verbs(world: World, key: str, *, change: bool) -> AsyncIterator[Answer]:
    """Every verb that changes something, and the stream of wakes; or every other one."""
    headers = {"authorization": f"Bearer {world.keys[key]}"}
    for request in requests(world):
        if (request.scope is not Scope.READ) is not change:
            continue
        url = f"{world.url}/store/{request.verb}"
        yield await ask(world.http, "POST", url, body=encode(request), headers=headers)
    if change:
        yield await ask(world.http, "POST", f"{world.url}/store/wakes", body=b"{}", headers=headers)


# -- the dashboard -----------------------------------------------------------------------------------


def pages(world: World, path: str, groups: list[str]) -> Iterator[str]:
    """The path of a page, with each name that its parameter can have."""
    names = {
        "{id}": [*world.tasks], "{root}": [*world.tasks], "{failure}": groups, "{queue}": ["later"],
        "{alert}": ["dead"], "{limit}": ["by-who"], "{name}": ["nightly", "chained"], "{tenant}": ["acme"],
        "{key}": ["0" * 12], "{endpoint}": [world.endpoint],
    }  # fmt: skip
    parameter = next((one for one in names if one in path), None)
    for name in [""] if parameter is None else names[parameter]:
        yield path.removeprefix("/").replace(parameter or "\0", name)


async def screens(world: World, person: Person) -> AsyncIterator[Answer]:
    """Every page, its stream if it has one, and the files to download."""
    found = await world.api("observer").good("GET", "/dead/failures")
    groups = [one["id"] for one in found["items"]]
    queries = {"/tasks/export": ("?format=csv", "?format=jsonl"), "/tasks/act": ("?do=replay&all=1",)}
    for screen in [screen for some in ALL for screen in some.screens]:
        for page in pages(world, screen.path, groups):
            for query in queries.get(screen.path, ("", "?live=1") if screen.live else ("",)):
                cookies = "; ".join(f"{name}={value}" for name, value in person.cookies.items())
                headers = {"accept": "text/html"} | ({"cookie": cookies} if cookies else {})
                yield await ask(world.http, "GET", f"{person.url}{page}{query}", headers=headers)


async def actions(world: World, person: Person) -> AsyncIterator[Answer]:
    """Every form, and the page that it leads to."""
    token = await person.token("queues/later")
    for action in [action for some in ALL for action in some.actions]:
        fields = {"why": "a test", **FIELDS.get(plain(action.path), {})}
        for page in [*pages(world, action.path, ["unknown"])][:30]:
            response = await person.post(page, fields, token=token)
            yield Answer(f"POST {page}", response.status_code, response.text)
            if response.status_code == 303:
                shown = await person.get(page.partition("/")[0])
                yield Answer(f"after {page}", shown.status_code, shown.text)


# -- the command line --------------------------------------------------------------------------------


def commands(world: World, key: str) -> Iterator[Answer]:
    """Every command that shows something, as text and as JSON."""
    names = {"early-card": "by-who", "early-schedule": "nightly", "default": "later"}
    environment = {"WINDLASS_KEY": world.keys[key]}
    tasks = [*world.tasks.values()] if FULL else [world.tasks[one] for one in world.dead]
    dead = [one.id for one in tasks if one.state == "dead"]
    for command, arguments in COMMANDS.items():
        given = [names.get(one, one) for one in arguments or ()]
        filled = [given]
        for name, ids in (("{task}", [one.id for one in tasks]), ("{dead}", dead)):
            if name in given:
                filled = [[one] for one in ids]
        for words in filled if arguments is not None else ():
            for form in ((), ("--json",)) if FULL else (("--json",),):
                called = [*command.split(), *words, "--store", world.url, *form]
                ran = CliRunner().invoke(root, called, env=environment)
                yield Answer(" ".join(called), ran.exit_code, ran.output)
