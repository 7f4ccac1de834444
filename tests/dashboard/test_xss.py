"""Stored cross-site scripting: hostile text in every field that can be written, on every screen."""

from collections.abc import Callable
from datetime import timedelta
from urllib.parse import quote

import msgspec
import pytest

from tests.dashboard.browser import Run, Tab
from tests.servers.api import ApiServer
from windlass import App
from windlass._dashboard.page import Screen
from windlass._dashboard.screens import ALL
from windlass._dashboard.view import DashboardSettings
from windlass._ids import new_id
from windlass._model.alert import Alert, AlertState
from windlass._model.filter import By, Filter, Page
from windlass._model.key import ApiKey, Login, Scope
from windlass._model.lease import Claim, Heartbeat, ProgressReport
from windlass._model.limit import Limit
from windlass._model.options import DeclaredType, Defaults
from windlass._model.queue import QueueSettings
from windlass._model.record import Worker
from windlass._model.schedule import Schedule
from windlass._model.task import Error, NewTask, Progress
from windlass._model.verdict import Bury, Settlement
from windlass._stores.memory import MemoryStore

HIT = "console.error(1)"
CORPUS = (
    f"<script>{HIT}</script>",
    f'"><img src=x onerror="{HIT}">',
    f"'><svg/onload={HIT}>",
    f"</textarea></title></script><script>{HIT}</script>",
    f"javascript:{HIT}",
    f'" autofocus onfocus="{HIT}" x="',
    f"{{{{ ''.__class__ }}}}${{{HIT}}}<hx-partial hx-on:load='{HIT}'>",
    f'<div hx-get="x" hx-trigger="load"></div><iframe srcdoc="<script>{HIT}</script>">',
    "\u202e</td></table>\x00&#x3C;script&#x3E;\r\ndata: x\n\n",
)
EVERYTHING = " ".join(CORPUS).replace("\x00", "")
SCREENS = {screen.path: screen for some in ALL for screen in some.screens if screen.template}
QUERIES = {"/tasks/act": "?do=cancel&all=1"}


async def fill(store: MemoryStore) -> dict[str, str]:
    """Write hostile text past all checks, as a program with the database could; returns names for paths."""
    await store.open()
    evil, now, minute = EVERYTHING, await store.now(), timedelta(minutes=1)
    payload = msgspec.json.encode({evil: [evil, {"deep": evil}]})
    tasks = [
        NewTask(
            id=(task_id := new_id()),
            root=task_id,
            type=evil,
            queue=evil,
            tenant=evil,
            payload=payload,
            enqueued_by=evil,
            idempotency_key=f"{number} {evil}",
            trace=evil,
        )
        for number in range(3)
    ]
    await store.enqueue(tasks)
    worker = Worker(name=evil, host=evil, version=evil, queues=(evil,), types=(evil,), slots=4, busy=1)
    await store.heartbeat(Heartbeat(session="s", worker=worker, lease_for=minute, opening=True))
    dead, running = await store.claim(Claim(session="s", queues=(evil,), limit=2, number=1))
    error, progress = Error(type=evil, message=evil, traceback=evil), Progress(fraction=0.5, message=evil)
    notes = msgspec.json.encode({evil: evil})
    bury = Settlement(
        lease=dead.lease, verdict=Bury(error=error), outcome="failed", progress=progress, notes=notes
    )
    await store.settle([bury])
    report = ProgressReport(running.lease, progress)
    beat = Heartbeat(session="s", worker=worker, lease_for=minute, held=(running.lease,), progress=(report,))
    await store.heartbeat(beat)
    by = By(who=evil, why=evil)
    await store.put(QueueSettings(name=evil, paused=True), by)
    await store.put(Limit(name=evil, queue=evil, running=1), by)
    await store.put(Alert(name=evil, type=evil, queue=evil, webhook=f"https://h/{evil}"), by)
    await store.put(AlertState(name=evil, raised_at=now, number=1), None)
    await store.put(Schedule(name=evil, type=evil, payload=payload, cron="0 3 * * *", tenant=evil), by)
    await store.put(DeclaredType(name=evil, defaults=Defaults(queue=evil), aliases=(evil,)), by)
    key = ApiKey(name="k" * 12, label=evil, hash="0" * 64, scopes=(Scope.READ,), created_at=now, tenant=evil)
    await store.put(key, by)
    await store.put(Login(name="0" * 64, key=key.name, secret=key.hash, created_at=now, expires_at=now), by)
    died = dead.task.id
    (found,) = (await store.find(Filter(ids=(died,)), Page())).items
    return {"id": died, "root": died, "failure": found.failure or "", "key": key.name}


@pytest.fixture(scope="module")
def hostile(server: ApiServer, run: Run) -> dict[str, str]:
    store = MemoryStore()
    names = run(fill(store))
    url = server.serve_app(App(store), dashboard=DashboardSettings(trace_url="x/{trace}"), open_to_all=True)
    return {"url": f"{url}/dashboard", **names}


def url_of(screen: Screen, names: dict[str, str]) -> str:
    parts = screen.path.split("/")
    filled = [
        quote(names.get(one[1:-1], EVERYTHING), safe="") if one.startswith("{") else one for one in parts
    ]
    return names["url"] + "/".join(filled) + QUERIES.get(screen.path, "")


def test_nothing_of_it_runs(hostile: dict[str, str], open_tab: Callable[..., Tab]) -> None:
    """The tab complains of errors on its console, which the text writes, and of violations of its policy."""
    tab = open_tab()
    page = tab.page
    for path, screen in SCREENS.items():
        response = page.goto(url_of(screen, hostile))
        assert response is not None
        assert response.status == 200, path
        assert page.locator("iframe, hx-partial, [onerror], [onload], [onfocus], [srcdoc]").count() == 0, path
        assert page.locator("a[href^='javascript' i]").count() == 0, path
        assert page.locator("script").evaluate_all("all => all.filter(one => !one.src).length") == 0, path
        if screen.live:
            tab.is_live()
        assert tab.complaints == [], path


@pytest.mark.full
@pytest.mark.parametrize("text", CORPUS)
def test_nothing_of_a_url_runs(text: str, hostile: dict[str, str], open_tab: Callable[..., Tab]) -> None:
    tab = open_tab()
    tab.expected += ["status of 404", "status of 422", "status of 400"]
    given = quote(text, safe="")
    places = ("tasks?q={0}&state={0}&cursor={0}", "queues/{0}", "{0}?{0}", "login?next={0}")
    for path in (place.format(given) for place in places):
        tab.page.goto(f"{hostile['url']}/{path}")
        assert tab.page.locator("script").count() == 1
