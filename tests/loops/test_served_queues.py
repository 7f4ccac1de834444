"""A worker for all queues: finds new ones, and serves those that have tasks in turn."""

from collections import Counter

import pytest

from tests.loops.workers import eventually, settings, working
from windlass import App, InvalidOption, WorkerSettings
from windlass._model.lease import Claimed
from windlass._observe.overview import read_overview
from windlass._store import served_queues
from windlass._store.served_queues import ServedQueues
from windlass._stores.memory import MemoryStore
from windlass.testing.conformance.steps import a_task, worker_on


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def app(store: MemoryStore, ran: list[str]) -> App:
    app = App(store)

    @app.task(name="note")
    async def note(of: str) -> None:
        ran.append(of)

    return app


async def fill(app: App, **numbers: int) -> None:
    for queue, number in numbers.items():
        for _ in range(number):
            await app.client.send("note", {"of": queue}, queue=queue)


async def claimed_from(store: MemoryStore, *queues: str) -> list[Claimed]:
    await store.enqueue([a_task(queue=queue) for queue in queues])
    return list(await (await worker_on(store)).claim(len(queues), *queues))


async def test_queues_that_no_type_names_are_served(app: App, ran: list[str]) -> None:
    await fill(app, one=2, two=3)

    await app.worker(settings(all_queues=True, drain=True)).run()

    assert Counter(ran) == {"one": 2, "two": 3}


async def test_a_queue_that_comes_up_while_it_runs_is_served(app: App, ran: list[str]) -> None:
    async with working(app, all_queues=True) as worker:
        await fill(app, new=1)
        await eventually(lambda: ran == ["new"])
        await fill(app, new=1, newer=1)
        await eventually(lambda: len(ran) == 3)

        assert {"new", "newer"} <= set(worker.queues)


async def test_a_known_queue_wakes_it(app: App, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(app, new=1)
    monkeypatch.setattr(served_queues, "FIND_EVERY", 3600)
    async with working(app, all_queues=True, poll=3600):
        await eventually(lambda: ran == ["new"])

        await fill(app, new=1)

        await eventually(lambda: ran == ["new", "new"])


async def test_a_long_queue_does_not_keep_others_waiting(app: App, ran: list[str]) -> None:
    await fill(app, long=300)
    await fill(app, short=5)

    await app.worker(settings(all_queues=True, drain=True, slots=1)).run()

    assert len(ran) == 305
    assert ran[:40].count("short") == 5


async def test_it_shows_as_a_worker_of_every_queue(app: App, store: MemoryStore) -> None:
    await fill(app, one=1)
    async with working(app, all_queues=True):
        overview = await read_overview(store)

    assert [(one.worker.all_queues, one.worker.queues) for one in overview.workers] == [(True, ())]
    assert set(overview.serving().values()) <= {1}


def test_queues_and_all_queues_exclude_each_other() -> None:
    with pytest.raises(InvalidOption, match="exclude each other"):
        WorkerSettings(queues=("mail",), all_queues=True)


async def test_busy_queues_take_turns_until_they_are_short(store: MemoryStore) -> None:
    queues = ServedQueues(store, ("a",), is_open=True)
    await store.enqueue([a_task(queue=queue) for queue in "abc"])

    await queues.find()

    turns = [queues.next(1) for _ in range(6)]
    assert sorted(turns[:3]) == [("a",), ("b",), ("c",)]
    assert turns[3:] == turns[:3]
    assert queues.note_claim(("a",), (), is_short=True)
    assert {queues.next(1) for _ in range(4)} == {("b",), ("c",)}
    assert queues.note_claim(("b", "c"), (), is_short=True) is False
    assert set(queues.next(1)) == {"a", "b", "c"}  # One claim looks at all of them.


async def test_after_a_wake_all_queues_are_looked_at_once(store: MemoryStore) -> None:
    queues = ServedQueues(store, ("a",), is_open=True)
    await store.enqueue([a_task(queue=queue) for queue in "ab"])
    await queues.find()

    queues.wake()

    assert set(queues.next(1)) == {"a", "b"}
    assert len(queues.next(1)) == 1


async def test_queues_of_a_full_claim_are_busy(store: MemoryStore) -> None:
    queues = ServedQueues(store, ("a", "b"), is_open=True)
    claimed = await claimed_from(store, "a", "b")

    assert queues.note_claim(("a", "b"), claimed, is_short=False)

    assert {queues.next(1), queues.next(1)} == {("a",), ("b",)}


async def test_given_queues_are_claimed_from_together(store: MemoryStore) -> None:
    queues = ServedQueues(store, ("a", "b"), is_open=False)
    claimed = await claimed_from(store, "a", "b")

    assert queues.note_claim(("a", "b"), claimed, is_short=False)
    assert queues.next(10) == ("a", "b")
    assert not queues.note_claim(("a", "b"), (), is_short=True)


async def test_short_queues_share_a_claim_and_a_long_one_has_its_own(store: MemoryStore) -> None:
    queues = ServedQueues(store, ("a",), is_open=True)
    await store.enqueue([a_task(queue=queue) for queue in "abcd" + "l" * 20])

    await queues.find()

    turns = [queues.next(10) for _ in range(2)]
    assert sorted(turns) == [("a", "b", "c", "d"), ("l",)]


async def test_what_a_shared_claim_took_is_not_asked_for_again(store: MemoryStore) -> None:
    queues = ServedQueues(store, ("a",), is_open=True)
    await store.enqueue([a_task(queue=queue) for queue in "aabbcc"])
    await queues.find()
    claimed = list(await (await worker_on(store)).claim(4, *queues.next(4)))

    assert queues.note_claim(("a", "b"), claimed, is_short=False)

    assert queues.next(4) == ("c",)


async def test_a_drain_runs_what_its_tasks_enqueue_into_new_queues(
    app: App, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain through three queues that nobody knew when the drain began; looks at intervals are too late."""
    monkeypatch.setattr(served_queues, "FIND_EVERY", 3600)

    @app.task(name="pass_on")
    async def pass_on(of: list[str]) -> None:
        ran.append(of[0])
        if rest := of[1:]:
            await app.client.send("pass_on", {"of": rest}, queue=rest[0])

    await app.client.send("pass_on", {"of": ["first", "second", "third"]}, queue="first")

    await app.worker(settings(all_queues=True, drain=True)).run()

    assert ran == ["first", "second", "third"]


async def test_a_drain_ends_beside_a_paused_queue(app: App, ran: list[str]) -> None:
    await fill(app, paused=1, open=1)
    await app.operator.pause("paused")

    await app.worker(settings(all_queues=True, drain=True)).run()

    assert ran == ["open"]
