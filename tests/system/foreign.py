"""Workers that are not in Python, on a server of their own: started, killed, and what they wrote down."""

import json
import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.system.fleet import LEASE, ROOT, UNENDED, Fleet, Member, wait_until
from tests.system.serving import Server
from windlass import Filter, Page, State, Task
from windlass._model.options import Defaults
from windlass._policy.input.payload import encode_payload

QUEUE = "elsewhere"


class Line(NamedTuple):
    """What a handler wrote down: that it has begun, or how it ended."""

    what: str
    id: str
    fence: int
    worker: str
    attempt: int


class Site:
    """A server that asks for keys and keeps house, and workers from elsewhere."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.operator = fleet.app.sync_operator
        self.key = self.operator.keys.create("workers", scopes=["work"], queues=[QUEUE])
        self.server = Server(fleet, keeper=True)
        self._numbers = 0

    def start(self, **options: Any) -> Member:
        """A worker in JavaScript, with the handlers of the tests; it is at work once this returns."""
        name = self._name("js")
        said = {"url": self.server.url, "queues": [QUEUE], "lease": LEASE, "name": name, **options}
        diary = str(self.fleet.folder / f"foreign-{name}.jsonl")
        command = [
            found("node"),
            str(ROOT / "tests/system/handlers.mjs"),
            json.dumps({**said, "diary": diary}),
        ]
        return self.started(name, command)

    def start_shell(self, *command: str, **environment: str) -> Member:
        """A worker in bash, that runs this for each task."""
        found("jq"), found("curl")
        script = ROOT / "examples/worker.sh"
        whole = [found("bash"), str(script), self.server.url, QUEUE, *command]
        return self.started(self._name("sh"), whole, **{"LEASE": str(int(LEASE)), **environment})

    def start_example(self) -> Member:
        """The worker of the examples, as it is."""
        example = str(ROOT / "examples/javascript/worker.mjs")
        return self.started(self._name("js"), [found("node"), example, self.server.url, QUEUE, "--lease=5"])

    def started(self, name: str, command: list[str], **environment: str) -> Member:
        """Any worker, once it has logged that it serves its queue."""
        errors = self.fleet.folder / f"errors-{name}.log"
        told = os.environ | {"WINDLASS_KEY": self.key.text} | environment
        with errors.open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.fleet.folder,
                env=told,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        member = Member(name, process, errors)
        self.fleet.gone.append(member)  # so that it is ended, whatever becomes of the test
        wait_until(lambda: "serv" in errors.read_text() or not member.alive, 20, what="it serves its queue")
        return member

    def send(self, kind: str, payload: dict[str, Any] | None = None, **options: Any) -> str:
        """Enqueue a task for them."""
        return self.fleet.app.sync_client.send(kind, payload or {}, queue=QUEUE, **options).id

    def send_many(self, kind: str, number: int, **payload: Any) -> list[str]:
        """Enqueue so many."""
        build, payloads = self.fleet.app.builder.build, [{"n": n, **payload} for n in range(number)]
        named = [build(kind, encode_payload(one), {}, Defaults(queue=QUEUE)) for one in payloads]
        return [handle.id for handle in self.fleet.app.sync_client.enqueue_tasks(named)]

    def task(self, task_id: str) -> Task:
        """As it stands."""
        return self.operator.task(task_id)

    def all_tasks(self) -> list[Task]:
        """All of them, up to a thousand."""
        return list(self.operator.find(Filter(queues=(QUEUE,)), Page(limit=1000)).items)

    def wait_for(self, task_id: str, *states: State, seconds: float = 20) -> Task:
        """The task, once it is there."""
        where = Filter(ids=(task_id,), states=states)
        wait_until(lambda: bool(self.operator.find(where, Page()).items), seconds, what=f"it is {states}")
        return self.task(task_id)

    def drain(self, seconds: float) -> None:
        """Until every task has ended."""
        unended = Filter(queues=(QUEUE,), states=UNENDED)
        wait_until(
            lambda: not self.operator.find(unended, Page(limit=1)).items, seconds, what="all have ended"
        )

    def lines(self) -> list[Line]:
        """What the handlers wrote down, each worker for itself."""
        told = []
        for file in sorted(Path(self.fleet.folder).glob("foreign-*.jsonl")):
            for line in file.read_text().splitlines():
                said = json.loads(line)
                worker = file.stem.removeprefix("foreign-")
                told.append(Line(said["what"], said["id"], said["fence"], worker, said.get("attempt", 0)))
        return told

    def runs(self) -> dict[str, list[Line]]:
        """The runs of each task."""
        runs = defaultdict(list)
        for line in self.lines():
            if line.what == "begun":
                runs[line.id].append(line)
        return runs

    def ends(self, task_id: str) -> list[str]:
        """How the runs of a task ended."""
        return [line.what for line in self.lines() if line.id == task_id and line.what != "begun"]

    def has_begun(self, task_id: str) -> bool:
        """Whether some run of it has."""
        return task_id in self.runs()

    def sessions(self) -> list[str]:
        """The workers from elsewhere that the store knows of."""
        return [one.worker.name for one in self.operator.workers() if QUEUE in one.worker.queues]

    def _name(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}{self._numbers}"


def found(program: str) -> str:
    """Where it is; a test that is skipped for want of it would prove nothing."""
    path = shutil.which(program)
    if path is None:
        package = {"node": "nodejs"}.get(program, program)
        pytest.fail(f"{program} is not here; on Debian, as root: apt-get install {package}", pytrace=False)
    return path
