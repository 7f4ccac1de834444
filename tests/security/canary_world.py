"""A store, a server without an app and a worker with one, as processes; and a secret brought in each way."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.integrations.sentry_sink import Sink, sentry_sink
from tests.loops.webhook_receiver import Receiver, webhook_receiver
from tests.servers.process import free_port
from windlass import App
from windlass._ids import new_id
from windlass._model.task import NewTask
from windlass._store.json_codec import encode
from windlass._store.messages import EnqueueRequest

ROOT = Path(__file__).parents[2]
TOKEN = re.compile(r"7f3asings[-\w]*")
PROGRAM = "tests.security.canary_program:app"
SOON = 30.0
SCOPES = {
    "reader": ("read",),
    "producer": ("enqueue", "read"),
    "operator": ("read", "operate", "enqueue"),
    "worker": ("work", "read", "operate", "enqueue"),
    "admin": ("admin",),
}
ENDS = ("completed", "dead", "cancelled")


SHAPES = (
    'a "{}"', "{}\nand {}", "100% {}", "\xe4 {} \u20ac", "C:\\{}", "<b>{}</b>", '{{"k": "{}"}}', "tab\t{}",
)  # fmt: skip
TEXTS = 2 + len(SHAPES)
"""Texts that a task of each way has, none of which may show."""


def secret(way: str) -> dict[str, Any]:
    """A payload with secret fields, whose names do not suggest it, and a text that a pattern matches."""
    return {
        "card": f'canary\'s "7f3asings-{way}"',
        "note": f"a bird-7f3asings-{way}-by-pattern flies",
        "more": [one.format(*[f"7f3asings-{way}-{n}"] * 2) for n, one in enumerate(SHAPES)],
    }


def hits(text: str) -> dict[str, str]:
    """The ways in whose secrets occur in a text, each with what is around it."""
    return {one[0]: text[max(0, one.start() - 80) : one.end() + 10] for one in TOKEN.finditer(text)}


def until(look: Callable[[], Any], what: str) -> Any:
    """What `look` returns, once that is true."""
    deadline, never = monotonic() + SOON, threading.Event()
    while not (found := look()):
        if monotonic() > deadline:
            raise AssertionError(f"it did not come about within {SOON:g} s that {what}")
        never.wait(0.05)
    return found


class World:
    """The processes, and how to ask them."""

    def __init__(self, folder: Path, log_format: str, store: str = "") -> None:
        self.folder = folder
        self.log_format = log_format
        self.store = store or f"sqlite:///{folder}/canary.db"
        self.port, self.metrics_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ids: dict[str, str] = {}  # of tasks, by the way that they came in
        self.responses: list[str] = []  # of requests that enqueue
        self.receiver: Receiver
        self.sentry: Sink
        self.keys: dict[str, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.receiver = self._stack.enter_context(webhook_receiver())
        self.sentry = self._stack.enter_context(sentry_sink())
        self.keys = asyncio.run(_new_keys(self.store))
        self._start("server", "serve", "--port", str(self.port), "--store", self.store)
        until(lambda: "serving" in self.log("server"), "the server serves")
        self.ask("PUT", "/alerts/dead", {"count": 1, "webhook": self.receiver.url}, key="operator")
        # By a field of which nobody knows yet that it is secret: the limit counts by the values of that.
        self.ask(
            "PUT",
            "/limits/early-card",
            {"by": "card", "running": 9, "rate": 100, "all": True},
            key="operator",
        )
        self.bring_in("early")
        # One worker reaches the store itself, the other one through the server.
        through = ("--store", self.url) if self.log_format == "json" else ("--store", self.store)
        metrics = ("--metrics", str(self.metrics_port), "--poll", "0.2", "--heartbeat", "0.2")
        self._start("worker", "worker", PROGRAM, *through, *metrics, key="worker")
        self._settled()
        until(
            lambda: not hits(self.ask("GET", f"/tasks/{self.ids['early-later']}")),
            "the server knows the types",
        )
        self.responses.clear()  # of before: nobody could know what is secret
        self.bring_in("late")
        for way in ("early-foreign", "late-foreign"):
            _run_elsewhere(self, way)
        self._settled()
        until(lambda: self.receiver.messages, "the alert is sent")
        until(lambda: self.ids["late-foreign"] in self.ask("GET", "/export"), "all that ended is exported")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- processes -----------------------------------------------------------------------------------

    def _start(self, name: str, *arguments: str, key: str | None = None) -> None:
        command = [sys.executable, "-m", "windlass._cli.main", *arguments, "--log-format", self.log_format]
        environment = {one: value for one, value in os.environ.items() if not one.startswith("WINDLASS_")}
        environment |= {"CANARY_SPANS": str(self.folder / "spans"), "WINDLASS_ALLOW_ADDRESSES": "127.0.0.1"}
        environment |= {"WINDLASS_LOG_LEVEL": "debug"}
        environment |= {"CANARY_SENTRY": self.sentry.dsn, "NO_PROXY": "127.0.0.1"}
        if key is not None:
            environment["WINDLASS_KEY"] = self.keys[key]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

        def stop() -> None:
            process.terminate()
            try:
                process.wait(15)
            finally:
                process.kill()

        self._stack.callback(stop)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def ask(self, method: str, path: str, body: Any = None, *, key: str = "reader") -> str:
        """The response to a request, whatever its status."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.keys[key]}", "content-type": "application/json"}
        url = path if path.startswith("http") else f"{self.url}{path}"
        try:
            with urlopen(Request(url, data, headers, method=method), timeout=SOON) as response:
                return str(response.read().decode())
        except HTTPError as error:
            return error.read().decode()

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ask("GET", path))["items"]
        return found

    def _settled(self) -> None:
        """Wait until nothing is left to run, but for what is not due for an hour and what others run."""
        until(
            lambda: all(
                one["state"] in ENDS or one["queue"] in ("foreign", "later")
                for one in self.items("/tasks?limit=100")
            ),
            "every task has ended",
        )

    # -- ways in -------------------------------------------------------------------------------------

    def bring_in(self, when: str) -> None:
        """Enqueue a secret in each way, through a server that has no app."""
        for way, bring in WAYS.items():
            bring(self, f"{when}-{way}")

    def post(self, way: str, path: str, body: Any) -> None:
        response = self.ask("POST", path, body, key="producer")
        self.responses.append(response)
        found = json.loads(response)
        assert "tasks" in found or "id" in found, response
        self.ids[way] = found["id"] if "id" in found else found["tasks"][-1]["id"]


def _by_task(type_name: str, **options: Any) -> Callable[[World, str], None]:
    def bring(world: World, way: str) -> None:
        world.post(way, "/tasks", {"type": type_name, "payload": secret(way), **options})

    return bring


def _by_send(world: World, way: str) -> None:
    world.ids[way] = asyncio.run(_sent(world.store, secret(way)))


async def _sent(store: str, payload: dict[str, Any]) -> str:
    app = App(store)
    handle = await app.client.send("canary.leak", payload)
    await app.close()
    return handle.id


async def _new_keys(store: str) -> dict[str, str]:
    app = App(store)
    keys = {name: await app.operator.keys.create(name, scopes=scopes) for name, scopes in SCOPES.items()}
    await app.close()
    return {name: key.text for name, key in keys.items()}


def _by_schedule(world: World, way: str) -> None:
    body = {"type": "canary.leak", "rule": "0 0 1 1 *", "payload": secret(way)}
    world.responses.append(world.ask("PUT", f"/schedules/{way}", body, key="operator"))
    response = world.ask("POST", f"/schedules/{way}/trigger", key="operator")
    world.responses.append(response)
    world.ids[way] = json.loads(response)["id"]


def _by_chain(world: World, way: str) -> None:
    last = {"type": "canary.take", "result_into": "account"}
    middle = {"type": "canary.pass", "result_into": "account", "next": [last]}
    world.post(way, "/tasks", {"type": "canary.give", "payload": secret(way), "next": [middle]})


def _by_group(world: World, way: str) -> None:
    members = [{"type": "canary.give", "payload": secret(f"{way}-{n}")} for n in range(2)]
    then = {"type": "canary.take", "result_into": "account"}
    world.post(way, "/tasks/batch", {"tasks": members, "then": then})


def _by_step(world: World, way: str) -> None:
    """A secret in the payload of a step that is not enqueued yet, as the task before it is not due."""
    step = {"type": "canary.leak", "payload": secret(way)}
    first = {"type": "canary.other", "payload": {}, "delay": 3600, "queue": "later", "next": [step]}
    world.post(way, "/tasks", first)


def _by_store(world: World, way: str) -> None:
    task_id = new_id()
    task = NewTask(id=task_id, root=task_id, type="canary.leak", payload=json.dumps(secret(way)).encode())
    world.responses.append(
        world.ask("POST", "/store/enqueue", encode(EnqueueRequest((task,))), key="producer")
    )
    world.ids[way] = task_id


def _run_elsewhere(world: World, way: str) -> None:
    """Run a task as a worker in another language that is careless, too."""
    worker = {"name": way, "queues": ["foreign"]}
    session = json.loads(world.ask("POST", "/work/sessions", worker, key="worker"))["session"]
    claim = {"session": session, "queues": ["foreign"], "number": 1}
    claimed = json.loads(world.ask("POST", "/work/claim", claim, key="worker"))["tasks"][0]
    told, more = claimed["payload"]["card"], claimed["payload"]["more"]
    lease = {"id": claimed["id"], "fence": claimed["fence"]}
    progress = {"fraction": 0.5, "message": f"charging {told} {more}"}
    error = {"type": "Declined", "message": f"declined {told} {more}", "traceback": f"at {told} {more}"}
    outcome = {
        **lease, "outcome": "failed", "fatal": True, "error": error, "progress": progress,
        "notes": {"told": told, told: 1},
    }  # fmt: skip
    held = [{**lease, "progress": progress}]
    for path, body in (
        ("/work/heartbeat", {"session": session, "worker": worker, "held": held, "through": 1}),
        ("/work/settle", {"tasks": [outcome]}),
    ):
        response = world.ask("POST", path, body, key="worker")
        assert "applied" in response or "lost" in response, response
        world.responses.append(response)
    world.ask("DELETE", f"/work/sessions/{session}", key="worker")


WAYS: dict[str, Callable[[World, str], None]] = {
    "task": _by_task("canary.leak"),
    "later": _by_task("canary.leak", delay=3600, queue="later"),
    "result": _by_task("canary.give"),
    "child": _by_task("canary.child"),
    "send": _by_send,
    "schedule": _by_schedule,
    "chain": _by_chain,
    "group": _by_group,
    "step": _by_step,
    "store": _by_store,
    "foreign": _by_task("canary.leak", queue="foreign"),
}


def stream(world: World, path: str) -> Iterator[str]:
    """The lines of a stream, until the server ends it."""
    request = Request(f"{world.url}{path}", headers={"authorization": f"Bearer {world.keys['reader']}"})
    with urlopen(request, timeout=SOON) as response:
        for line in response:
            yield line.decode()
