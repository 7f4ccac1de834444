"""What dead tasks failed with: how often, an example, and what is done to all of them."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.contents import contents
from tests.loops.workers import drained, eventually, working
from windlass import App, By, Filter, InvalidOption, State
from windlass._model.filter import Failure
from windlass.testing.harness import harness

ANN = By(who="ann", why="the gateway is back")


@pytest.fixture
async def app() -> AsyncIterator[App]:
    """Five mails that died in two ways, and two reports that died in one."""
    app = App("memory://")

    @app.task(name="mail", queue="mail", max_attempts=1)
    def mail(n: int) -> None:
        if n < 4:
            raise ConnectionError(f"no reply from 10.0.0.{n}:25 after {n} s")
        raise ValueError(f"no customer {n}")

    @app.task(name="report", max_attempts=1, secret=["card"])
    def report(card: str) -> None:
        raise ConnectionError(f"declined: {card}")

    with harness(app) as run:
        for n in range(5):
            await mail.aenqueue(n)
            await run.arun_until_idle(raise_errors=False)
            run.clock.advance(timedelta(minutes=1))
        for card in ("visa of ann", "visa of bob"):
            await report.using(queue=card.replace(" ", "-")).aenqueue(card)
            await run.arun_until_idle(raise_errors=False)
        yield app


def named(failures: list[Failure]) -> list[tuple[int, str, str]]:
    return [(one.number, one.type, one.error.type if one.error else "") for one in failures]


async def test_failures_are_listed_the_most_frequent_first(app: App) -> None:
    failures = list(await app.operator.failures())

    assert named(failures) == [
        (4, "mail", "ConnectionError"),
        (2, "report", "ConnectionError"),
        (1, "mail", "ValueError"),
    ]
    assert len({one.id for one in failures}) == 3
    assert all(one.exact for one in failures)


async def test_a_failure_has_its_span_its_queues_and_its_newest_error(app: App) -> None:
    network, cards, _ = await app.operator.failures()

    assert network.last_at - network.first_at == timedelta(minutes=3)
    assert network.error is not None
    assert network.error.message == "no reply from 10.0.0.3:25 after 3 s"
    assert (await app.operator.task(network.task_id)).error == network.error
    assert (network.queues, cards.queues) == (("mail",), ("visa-of-ann", "visa-of-bob"))


async def test_secrets_are_masked(app: App) -> None:
    _, cards, _ = await app.operator.failures()

    assert "visa of" not in contents(cards)


async def test_a_filter_and_a_limit_narrow_it(app: App) -> None:
    assert len(await app.operator.failures(limit=1)) == 1
    assert named(list(await app.operator.failures(Filter(types=("report",))))) == [
        (2, "report", "ConnectionError")
    ]
    assert await app.operator.failures(Filter(states=(State.READY,))) == []
    for limit in (0, 51):
        with pytest.raises(InvalidOption, match="1 to 50"):
            await app.operator.failures(limit=limit)


async def test_the_tasks_of_one_failure_are_replayed(app: App) -> None:
    network, *others = await app.operator.failures()

    number = await app.operator.replay(Filter(failures=(network.id,)), by=ANN)

    assert number == 4
    assert list(await app.operator.failures()) == others


async def test_as_a_dictionary_it_is_the_document_of_the_api(app: App) -> None:
    network, *_ = await app.operator.failures()

    document = network.as_dict()

    assert document["id"] == network.id
    assert document["error"]["type"] == "ConnectionError"
    assert document["queues"] == ["mail"]


def test_the_blocking_operator_has_them(app: App) -> None:
    assert [one.number for one in app.sync_operator.failures()] == [4, 2, 1]


async def test_a_spread_replay_goes_on_when_everything_was_restarted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    before = App(url)

    @before.task(name="mail", max_attempts=1)
    async def fail(n: int) -> None:
        raise ConnectionError(f"no reply {n}")

    await before.client.enqueue_many([fail.step(n) for n in range(5)])
    await drained(before)
    assert await before.operator.replay(by=ANN, spread=2.0) == 5
    later = await before.operator.find(Filter(states=(State.SCHEDULED,)))
    await before.close()

    after, started = App(url), []

    @after.task(name="mail")
    async def send(n: int) -> None:
        started.append(n)

    async with working(after, keeper=True):
        await eventually(lambda: len(started) == 5)
    await after.close()

    assert 0 < len(later.items) <= 4  # some may have become due by then, on a busy machine
    assert started == list(range(5))
