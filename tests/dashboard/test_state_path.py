"""The path of a task through its states, and tracebacks in parts."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import App, Backoff, By, Snooze, WorkerSettings
from windlass._dashboard.screens.task import traceback_parts
from windlass._dashboard.tasks.state_path import MOVES, draw_path, state_path
from windlass._documents.tasks import attempt_document, task_document
from windlass._model.state import State
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock

BY = By(who="ann", why="a test")


class Story:
    """An app whose clock and worker stand still between steps."""

    def __init__(self) -> None:
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.app = App(MemoryStore(clock=self.clock), backoff=Backoff(base=10, factor=1, jitter=0))
        self.say: list[Exception | None] = []

        @self.app.task(name="t", max_attempts=3)
        async def t() -> None:
            if self.say and (error := self.say.pop(0)):
                raise error

    async def work(self) -> None:
        await self.app.worker(WorkerSettings(drain=True)).run()

    async def later(self) -> None:
        self.clock.advance(timedelta(minutes=1))
        await self.app.store.promote(100)

    async def path(self, id: str) -> list[str]:
        task = task_document(await self.app.operator.task(id))
        attempts = [attempt_document(one) for one in await self.app.operator.attempts(id)]
        path = state_path(task, attempts)
        moves = {(one.state, other.state) for one, other in pairwise(path)}
        assert moves <= set(MOVES), "every move is in the table"
        assert draw_path(path).count('class="taken"') == len(moves)
        return [visit.state.value for visit in path]


async def completed(story: Story) -> str:
    id = (await story.app.client.send("t")).id
    await story.work()
    return id


async def scheduled(story: Story) -> str:
    return (await story.app.client.send("t", delay="1h")).id


async def retried(story: Story) -> str:
    story.say = [ValueError("no")]
    id = await completed(story)
    await story.later()
    await story.work()
    return id


async def snoozed(story: Story) -> str:
    story.say = [Snooze("10s")]
    return await completed(story)


async def replayed(story: Story) -> str:
    story.say = [ValueError("a"), ValueError("b"), ValueError("c")]
    id = await completed(story)
    for _ in range(2):
        await story.later()
        await story.work()
    await story.app.operator.replay_one(id, by=BY)
    await story.work()
    return id


async def cancelled(story: Story) -> str:
    id = await scheduled(story)
    await story.app.operator.cancel_one(id, by=BY)
    return id


async def waiting(story: Story) -> str:
    first = await story.app.client.send("t", delay="1h")
    return (await story.app.client.send("t", after=[first])).id


RETRY = ["running", "scheduled", "ready"]


@pytest.mark.parametrize(
    ("happen", "path"),
    [
        (completed, ["ready", "running", "completed"]),
        (scheduled, ["scheduled"]),
        (retried, ["ready", *RETRY, "running", "completed"]),
        (snoozed, ["ready", "running", "scheduled"]),
        (replayed, ["ready", *RETRY, *RETRY, "running", "dead", "ready", "running", "completed"]),
        (cancelled, ["scheduled", "cancelled"]),
        (waiting, ["waiting"]),
    ],
)
async def test_the_path_of_a_task(happen: Callable[[Story], Awaitable[str]], path: list[str]) -> None:
    story = Story()
    assert await story.path(await happen(story)) == path
    await story.app.close()


def test_the_diagram_has_every_state() -> None:
    assert all(f">{state}</text>" in draw_path([]) for state in State)


TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/tasks.py", line 3, in charge
    pay(order)
  File "/usr/lib/python3.13/site-packages/httpx/_client.py", line 9, in send
    raise TimeoutError("<b>")
    ^^^^^^^^^^^^^^^^^^^^^^^^^
TimeoutError: <b>
second line
"""


def test_frames_of_the_program_are_told_from_others() -> None:
    parts = traceback_parts(TRACEBACK)
    assert [part.kind for part in parts] == ["", "own", "foreign", ""]
    assert "pay(order)" in parts[1].text
    assert parts[3].text == "TimeoutError: <b>\nsecond line\n"


@given(st.text(alphabet='File "/a", line 1\n  x\\', max_size=300) | st.text(max_size=300))
def test_the_parts_of_a_traceback_are_its_text(text: str) -> None:
    assert "".join(part.text for part in traceback_parts(text)) == text


def test_what_is_drawn_is_escaped() -> None:
    assert not re.search(r"<(?!/?(svg|defs|marker|path|g|rect|text)\b)", draw_path([]))
