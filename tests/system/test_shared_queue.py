"""Two programs with different task types share a queue: neither delays the tasks of the other."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from tests.examples import sample
from tests.system.fleet import Fleet, wait_until
from windlass import Filter, Page, State
from windlass._model.task import Task
from windlass.testing.conformance.steps import a_task

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

QUEUE = "shared"
NUMBER = 500
PROMPT = 1.0  # seconds


@pytest.fixture(params=sample(["sqlite"], ["postgres", "redis"]))
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    url, schema = "", f"t_{uuid4().hex[:8]}"
    if request.param == "postgres":
        url = f"{request.getfixturevalue('postgres_newest').url}?schema={schema}"
    elif request.param == "redis":
        url = f"{request.getfixturevalue('valkey').url}?name={schema}"
    with closing(Fleet(tmp_path, server=url)) as fleet:
        fleet.settings["queues"] = [QUEUE]
        yield fleet


def send(fleet: Fleet, number: int, *programs: str) -> None:
    """Enqueue tasks of these programs in turn."""
    batch = [
        a_task(type=f"{programs[n % len(programs)]}.nap", queue=QUEUE, payload=b'{"seconds":0.001}')
        for n in range(number)
    ]
    fleet.app.sync_client.enqueue_tasks(batch)


def tasks(fleet: Fleet, name: str, *states: State) -> list[Task]:
    where = Filter(types=(f"{name}.nap",), states=states or None)
    return [*fleet.app.sync_operator.find(where, Page(limit=1000)).items]


def is_done(fleet: Fleet, name: str, number: int) -> bool:
    return len(tasks(fleet, name, State.COMPLETED)) == number


def test_both_drain_and_nothing_waits_for_the_other(fleet: Fleet) -> None:
    send(fleet, 2 * NUMBER, "lasting", "custom")
    for name in ("lasting", "custom"):
        fleet.start_program(name)
    for name in ("lasting", "custom"):
        wait_until(lambda name=name: is_done(fleet, name, NUMBER), 60, what=f"{name} has run all")  # type: ignore[misc]

    ended = tasks(fleet, "lasting") + tasks(fleet, "custom")
    assert {task.attempt for task in ended} == {1}
    # Before it knows better, a worker claims as many wrong tasks as it has slots, in two claims or so.
    assert sum(task.fence - 1 for task in ended) <= 4 * fleet.settings["slots"]


def test_a_task_behind_a_thousand_of_another_program_starts_at_once(fleet: Fleet) -> None:
    send(fleet, 2 * NUMBER, "custom")
    fleet.start_program("lasting").wait_ready()
    for number in range(1, 6):
        send(fleet, 1, "lasting")
        wait_until(lambda number=number: is_done(fleet, "lasting", number), 30, what="it has run")  # type: ignore[misc]

    late = [
        (task.claimed_at - task.created_at).total_seconds()
        for task in tasks(fleet, "lasting")
        if task.claimed_at
    ]
    assert len(late) == 5
    assert max(late) < PROMPT, late
    others = tasks(fleet, "custom")
    assert {(task.state, task.attempt) for task in others} == {(State.READY, 0)}
