"""The canary matrix: a secret that came in by any way shows in no way out.

The server has no app: what is secret it learns from the types that the worker has published, for tasks that
came before as for those that came after. Handlers, and a worker in another language, do everything with the
secret that they should not.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.examples import sample
from tests.security.canary_world import TEXTS, WAYS, World, hits, secret, stream, until
from tests.security.probes import ENOUGH
from tests.servers.postgres import Postgres
from windlass import App, Filter, Page
from windlass._archive import Archiver
from windlass._cli.root import root
from windlass._http.app import OPERATIONS
from windlass._store import messages
from windlass._store.json_codec import encode
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.clock import ManualClock

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

Texts = Iterator[str]
LEAKS: dict[str, str] = {}
"""Ways out that are known to leak, with the reason. It must stay empty."""


SERVERS: dict[str, Callable[[Path], Any]] = {"postgres": Postgres.start}


@pytest.fixture(scope="module", params=sample(["json"], ["text", "postgres"]))
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """On SQLite with logs of both formats, whose workers reach the store by two ways; and on a server."""
    folder, name = tmp_path_factory.mktemp("canary"), request.param
    with ExitStack() as opened:
        store = opened.enter_context(SERVERS[name](folder)).url if name in SERVERS else ""
        log_format = "text" if name in SERVERS else name
        yield opened.enter_context(World(folder, log_format, store))


def known(names: list[str]) -> list[Any]:
    """The parameters of a test; of a known leak it is expected to fail, and must."""
    return [
        pytest.param(one, marks=pytest.mark.xfail(reason=LEAKS[one], strict=True)) if one in LEAKS else one
        for one in names
    ]


def assert_silent(texts: Texts) -> None:
    """No hit in any text; and there are texts, so that silence means something."""
    found = [*texts]
    assert found
    ways: dict[str, str] = {}
    for text in found:
        ways = hits(text) | ways
    assert ways == {}


# -- REST --------------------------------------------------------------------------------------------


def get(*paths: str, key: str = "reader") -> Callable[[World], Texts]:
    return lambda world: (world.ask("GET", path, key=key) for path in paths)


def call(method: str, path: str, body: Any = None, key: str = "admin") -> Callable[[World], Texts]:
    return lambda world: iter([world.ask(method, path, body, key=key)])


def each_task(suffix: str = "", key: str = "reader") -> Callable[[World], Texts]:
    return lambda world: (
        world.ask("GET", f"/tasks/{one['id']}{suffix}", key=key) for one in world.items("/tasks?limit=1000")
    )


def of_way(method: str, path: str, way: str, body: Any = None) -> Callable[[World], Texts]:
    return lambda world: iter([world.ask(method, path.format(world.ids[way]), body, key="operator")])


def enqueued(path: str) -> Callable[[World], Texts]:
    """The response to another task; those of all ways in are among the responses of the world."""

    def ask(world: World) -> Texts:
        task = {"type": "canary.leak", "payload": secret("again"), "queue": "later", "delay": 3600}
        body: Any = {"tasks": [task]} if path.endswith("batch") else task
        yield world.ask("POST", path, body, key="producer")
        yield from world.responses

    return ask


def watched(world: World) -> Texts:
    """A stream of a task from before it runs until its end."""
    task = {"type": "canary.leak", "payload": secret("watched"), "delay": 1}
    task_id = json.loads(world.ask("POST", "/tasks", task, key="producer"))["id"]
    yield from stream(world, f"/tasks/{task_id}/events")


def overviews(world: World) -> Texts:
    yield next(line for line in stream(world, "/events") if line.startswith("data:"))


def limited(world: World) -> Texts:
    """Limits by secret fields, whose keys are values of these; `early-card` is stored, others are refused."""
    for name in ("card", "password"):
        yield world.ask("PUT", f"/limits/by-{name}", {"by": name, "running": 9, "all": True}, key="operator")
    task = {"type": "canary.leak", "payload": {**secret("limited"), "password": "7f3asings-limited"}}
    world.post("limited", "/tasks", task)
    until(lambda: "dead" in world.ask("GET", f"/tasks/{world.ids['limited']}"), "it has ended")
    shown = world.ask("GET", "/limits")
    assert "early-card" in shown
    yield shown


LATER = "0 0 1 1 *"
SCHEDULE = {"type": "canary.leak", "rule": LATER, "payload": secret("put")}
REST: dict[str, Callable[[World], Texts]] = {
    "list_tasks": get("/tasks?limit=1000", "/tasks?limit=1000&error=declined"),
    "count_tasks": get("/tasks/counts", "/tasks/counts?error=declined"),
    "list_chains": get("/chains"),
    "get_task": each_task(),
    "list_attempts": each_task("/attempts"),
    "list_dead": get("/dead?limit=1000"),
    "list_failures": get("/dead/failures"),
    "export_tasks": get("/export"),
    "get_archive": get("/archive"),
    "list_queues": get("/queues"),
    "get_queue": get("/queues/default"),
    "list_queue_types": get("/queues/default/types"),
    "list_queue_tenants": get("/queues/default/tenants"),
    "put_limit": limited,
    "list_limits": get("/limits"),
    "get_limit": get("/limits/early-card", "/limits/by-card", "/limits/by-password"),
    "change_limit": call("PATCH", "/limits/by-card", {"running": 8}),
    "remove_limit": call("DELETE", "/limits/by-card"),
    "list_schedules": get("/schedules"),
    "get_schedule": get("/schedules/early-schedule", "/schedules/late-schedule"),
    "list_ticks": get("/schedules/early-schedule/ticks"),
    "list_past_ticks": get("/schedules/early-schedule/ticks/past"),
    "list_alerts": get("/alerts"),
    "get_alert": get("/alerts/dead"),
    "list_types": get("/types"),
    "list_workers": get("/workers"),
    "list_keys": get("/keys", key="admin"),
    "get_overview": get("/overview"),
    "get_history": get("/history"),
    "list_type_history": get("/history/types"),
    "watch_overview": overviews,
    "watch_task": watched,
    "get_metrics": get("/metrics"),
    "get_check": get("/check"),
    "healthz": get("/healthz"),
    "readyz": get("/readyz"),
    "openapi_document": get("/openapi.json"),
    "docs_page": get("/docs"),
    "enqueue": enqueued("/tasks"),
    "enqueue_batch": enqueued("/tasks/batch"),
    "enqueue_stream": enqueued("/tasks/stream"),
    "put_schedule": call("PUT", "/schedules/put", SCHEDULE),
    "change_schedule": call("PATCH", "/schedules/early-schedule", {"rule": "2h"}),
    "pause_schedule": call("POST", "/schedules/early-schedule/pause"),
    "resume_schedule": call("POST", "/schedules/early-schedule/resume"),
    "trigger_schedule": call("POST", "/schedules/early-schedule/trigger"),
    "remove_schedule": call("DELETE", "/schedules/put"),
    "cancel_task": of_way("DELETE", "/tasks/{}", "early-later"),
    "replay_task": of_way("POST", "/tasks/{}/replay", "early-task", {"payload": secret("replayed")}),
    "discard_dead_letter": of_way("DELETE", "/dead/{}?why=canary", "early-send"),
    "cancel_tasks": call("POST", "/tasks/cancel", {"queue": ["later"], "why": "canary"}),
    "discard_dead": call("POST", "/dead/discard", {"root": "x", "why": "canary"}),
    "replay_dead": call("POST", "/dead/replay", {"queue": ["foreign"]}),
    "set_queue": call("PATCH", "/queues/later", {"fairness": "fifo"}),
    "pause_queue": call("POST", "/queues/later/pause"),
    "resume_queue": call("POST", "/queues/later/resume"),
    "remove_queue": call("DELETE", "/queues/later"),
    "put_quota": call("PUT", "/quotas/acme", {"tasks": 9}),
    "list_quotas": get("/quotas"),
    "get_quota": get("/quotas/acme"),
    "remove_quota": call("DELETE", "/quotas/acme"),
    "list_endpoints": get("/endpoints"),
    "enable_endpoint": call("POST", "/endpoints/none/enable"),
    "put_alert": call("PUT", "/alerts/other", {"count": 99}),
    "remove_alert": call("DELETE", "/alerts/other"),
    "create_key": call("POST", "/keys", {"label": "x", "scopes": ["read"]}),
    "rotate_key": call("POST", "/keys/none/rotate"),
    "revoke_key": call("DELETE", "/keys/none"),
    "list_logins": get("/logins", key="admin"),
    "sign_out_key": call("DELETE", "/keys/none/logins"),
    "stop_archiving": call("DELETE", "/archive"),
    # The way in `foreign` settles; what a worker claims has its payload, as it needs that.
    "open_session": call("POST", "/work/sessions", {"name": "x", "queues": ["none"]}),
    "end_session": call("DELETE", "/work/sessions/none"),
    "heartbeat": lambda world: iter(world.responses),
    "claim": call("POST", "/work/claim", {"session": "none", "queues": ["none"], "number": 1}),
    "settle": lambda world: iter(world.responses),
    "list_audit": get("/audit?limit=1000"),  # by now of everything above
    "remove_type": call("DELETE", "/types/none"),
}  # fmt: skip


def test_every_operation_has_an_entry() -> None:
    assert {one.name for one in OPERATIONS} == set(REST)


@pytest.mark.parametrize("operation", known([*REST]))
def test_no_operation_shows_it(world: World, operation: str) -> None:
    assert_silent(REST[operation](world))


# -- the protocol of stores --------------------------------------------------------------------------

NO_SHOW = {"enqueue", "claim", "settle", "heartbeat", "once", "lead", "promote", "rescue", "prune", "apply"}
SHOWS = {"about", "find", "count", "ended", "attempts", "records", "check", "put", "remove"}


def test_every_verb_has_an_entry() -> None:
    assert set(messages.REQUESTS) == NO_SHOW | SHOWS


def store_verb(world: World, verb: str) -> Texts:
    """What a reader gets of a verb, and what it gets without the scope for it."""
    match verb:
        case "find":
            requests = [encode(messages.FindRequest(Filter(), Page(limit=1000)))]
        case "count":
            requests = [encode(messages.CountRequest(Filter(), ("type", "state")))]  # type: ignore[arg-type]
        case "attempts":
            tasks = world.items("/tasks?limit=1000")
            requests = [encode(messages.AttemptsRequest(one["id"])) for one in tasks]
        case "records":
            kinds = messages.RECORD_TYPES
            requests = [encode(messages.RecordsRequest(kind, Page(limit=1000))) for kind in kinds]
        case _:
            requests = [b"{}"]
    return (world.ask("POST", f"/store/{verb}", one) for one in requests)


@pytest.mark.parametrize("verb", known([*messages.REQUESTS]))
def test_no_verb_shows_it_to_a_reader(world: World, verb: str) -> None:
    assert_silent(store_verb(world, verb))


# -- the command line --------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[str, ...] | None] = {
    "tasks list": ("--limit", "1000"),
    "tasks show": ("{task}",),
    "tasks attempts": ("{task}",),
    "dead list": ("--limit", "1000"),
    "dead failures": (),
    "dead show": ("{dead}",),
    "schedules list": (),
    "schedules show": ("early-schedule",),
    "schedules next": ("early-schedule",),
    "export": (),
    "limits list": (),
    "limits show": ("early-card",),
    "quotas list": (),
    "endpoints list": (),
    "queues list": (),
    "queues show": ("default",),
    "queues tenants": ("default",),
    "alerts list": (),
    "types list": (),
    "workers": (),
    "history": (),
    "top": ("--once",),
    "audit": ("--limit", "1000"),
    "check": (),
    "archive show": (),
    # These change something, and print no more than names and ids, or run until stopped:
    **dict.fromkeys((
        "alerts add", "alerts remove", "alerts test", "archive stop", "completion", "dead discard",
        "dashboard", "dead replay", "enqueue", "keeper", "keys create", "keys list", "keys revoke",
        "owner", "shards add", "shards drain", "shards list", "shards remove", "shards route",
        "shards routes",
        "keys rotate", "encryption new-key", "encryption rotate", "init", "quotas set", "quotas remove",
        "endpoints enable",
        "limits change", "limits remove", "limits set", "migrate", "prune", "queues pause", "queues remove",
        "queues resume", "queues set", "queues stripe", "schedules add", "schedules pause",
        "schedules remove", "schedules resume", "schedules trigger", "serve", "tasks cancel", "types remove",
        "up", "version", "worker",
    )),
}  # fmt: skip


def test_every_command_has_an_entry() -> None:
    def names(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
        if not isinstance(command, click.Group):
            yield " ".join(path)
            return
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from names(found, (*path, name))

    assert set(names(root)) == set(COMMANDS)


def printed(world: World, command: str, store: str) -> Texts:
    """What a command prints, as a table and as JSON, of each task if it takes one."""
    tasks = [one["id"] for one in world.items("/tasks?limit=1000")]
    dead = [one["id"] for one in world.items("/dead?limit=1000")]
    arguments = COMMANDS[command]
    assert arguments is not None
    filled = [arguments]
    for name, ids in (("{task}", tasks), ("{dead}", dead)):
        if name in arguments:
            filled = [(one,) for one in ids]
    for given in filled:
        for form in ((), ("--json",)):
            ran = CliRunner().invoke(root, [*command.split(), *given, "--store", store, *form])
            yield ran.output
            assert ran.exit_code in (0, 1, 3, 4), (
                ran.output
            )  # a limit by a secret field is refused, and not there


@pytest.mark.parametrize(
    "command", known([one for one, arguments in COMMANDS.items() if arguments is not None])
)
@pytest.mark.parametrize("through", ["file", "server"])
def test_no_command_prints_it(
    world: World, command: str, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_KEY", world.keys["reader"])
    assert_silent(printed(world, command, world.store if through == "file" else world.url))


# -- everything else ---------------------------------------------------------------------------------


def archived(world: World) -> str:
    """The files of the archive, as a keeper writes them in two days."""
    if not world.store.startswith("sqlite"):
        pytest.skip("the clock of this store cannot be set two days ahead")
    folder = world.folder / "history"
    asyncio.run(archive(world, folder))
    return "".join(path.read_text() for path in folder.iterdir())


async def archive(world: World, folder: Path) -> None:
    store = SQLiteStore(world.folder / "canary.db", clock=ManualClock(datetime.now(UTC) + timedelta(days=2)))
    archiver = Archiver(folder)
    await store.open()
    try:
        await archiver.turn_on(store)
        assert await archiver.write_due(store)
    finally:
        await store.close()


def reported(world: World) -> str:
    """What Sentry gets: errors, messages, breadcrumbs, local variables and transactions of every way in."""

    def bodies() -> str:
        return b"".join(world.sentry.bodies).decode()

    kinds = ("declined [secret]", "charging [secret]", "it failed", '"type":"transaction"', '"vars":')
    until(lambda: all(one in bodies() for one in kinds), "Sentry has one of each kind")
    return bodies()


OTHERS: dict[str, Callable[[World], str]] = {
    "log of the worker": lambda world: world.log("worker"),
    "log of the server": lambda world: world.log("server"),
    "metrics of the worker": lambda world: world.ask("GET", f"http://127.0.0.1:{world.metrics_port}/metrics"),
    "webhooks": lambda world: json.dumps([[one.body, one.headers] for one in world.receiver.messages]),
    "spans": lambda world: (world.folder / "spans").read_text(),
    "archive": archived,
    "Sentry": reported,
}


@pytest.mark.parametrize("out", known([*OTHERS]))
def test_nothing_else_tells_it(world: World, out: str) -> None:
    text = OTHERS[out](world)

    assert "canary" in text or "windlass" in text
    assert_silent(iter([text]))


def test_the_secret_was_there(world: World) -> None:
    """Each way in has a task, and the store has its secret: what is masked has not been lost."""
    payloads = asyncio.run(stored(world))

    assert {f"{when}-{way}" for way in WAYS for when in ("early", "late")} <= set(world.ids)
    assert b"7f3asings-late-task" in payloads
    assert 2 * len(WAYS) * TEXTS >= ENOUGH  # of each that comes to logs, spans, Sentry and the archive


async def stored(world: World) -> bytes:
    app = App(world.store)
    found = await app.operator.find(Filter(), Page(limit=1000))
    await app.close()
    return b"".join(one.payload for one in found.items)


def test_no_leak_is_known() -> None:
    assert LEAKS == {}
